//## Building blocks of register-tiled kernels.
//##
//## each(name, count, unrolled): run a block for each index below `count`; unrolled, so that arrays
//## indexed by it stay in registers, or as a loop.
//# macro each(name, count, unrolled)
//# if unrolled
//#   for n in range(count)
{
{{ caller(n ~ "u") }}
}
//#   endfor
//# else
for (var {{ name }} = 0u; {{ name }} < {{ count }}u; {{ name }}++) {
{{ caller(name) }}
}
//# endif
//# endmacro
