//## exp of the difference of two scores, or of a vec4 of them. Import with context: needs `natural`, whether scores are
//## in natural units (see lib/score.wgsl) and not in units of log2.
//# macro exp_of(difference)
exp2({{ "(" ~ difference ~ ") * LOG2_E" if natural else difference }})
//#- endmacro
