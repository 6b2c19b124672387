//## The thread index: the number of an invocation in its workgroup, such that neighbours share a subgroup. WGSL does
//## not say which invocations share one, so the index is made of the subgroup's number and the lane. Import with
//## context: needs WORKGROUP and `subgroup_ids`, whether there is a built-in number of the subgroup; without it
//## subgroups count themselves.
//# macro thread_index_memory()
//# if not subgroup_ids
var<workgroup> subgroups_seen: atomic<u32>;
//# endif
//# endmacro
//##
//# macro thread_index_arguments()
  @builtin(subgroup_size) subgroup_size: u32,
  @builtin(subgroup_invocation_id) subgroup_lane: u32,
//# if subgroup_ids
  @builtin(subgroup_id) subgroup_number: u32,
//# endif
//# endmacro
//##
//## Declares `thread_index`.
//# macro find_thread_index()
//# if not subgroup_ids
  var subgroup_number = 0u;
  if (subgroup_lane == 0u) {
    subgroup_number = atomicAdd(&subgroups_seen, 1u);
  }
  subgroup_number = subgroupBroadcastFirst(subgroup_number);
//# endif
  let thread_index = (subgroup_number * subgroup_size + subgroup_lane) % WORKGROUP;
//# endmacro
//##
//## `value` of the invocation whose thread index differs in this bit. Among four neighbours a quad instruction does it,
//## which needs no check for lanes past the subgroup's end.
//# macro swapped(value, bit)
{{ {1: "quadSwapX(" ~ value ~ ")", 2: "quadSwapY(" ~ value ~ ")"}.get(bit, "subgroupShuffleXor(" ~ value ~ ", " ~ bit ~ "u)") }}
//#- endmacro
