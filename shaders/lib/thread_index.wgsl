//## Which invocation of its workgroup this one is, so that neighbours share a subgroup: WGSL does not say which
//## invocations do, so they take their place from the subgroup's number and their lane. Import with context: needs
//## WORKGROUP and `subgroup_ids`; without these the subgroups draw their numbers.
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
//## What the invocation has whose thread_index differs in this bit. Within four there is an instruction of its own, which
//## need not care for numbers past the subgroup's end.
//# macro swapped(value, bit)
{{ {1: "quadSwapX(" ~ value ~ ")", 2: "quadSwapY(" ~ value ~ ")"}.get(bit, "subgroupShuffleXor(" ~ value ~ ", " ~ bit ~ "u)") }}
//#- endmacro
