"""h = sum_i softmax_i(w . RMSNorm_g(v_i)) v_i over the sources v_i of one token."""
