/* Every variant of an arithmetic instruction that nvcc writes for our kernels, for any of the
 * architectures: ROW(function, name, results, sources), letters as in arithmetic.h, in the order of
 * strcmp, for it is searched by halves. A variant that is not here is a fault of the decoder; a new
 * one needs its row, its function, and its examples in instruction_cases.h.
 *
 * add, sub and mul without a rounding are .rn: ptxas may fuse them to fma, but is told not to
 * (-fmad=false). */
#ifndef PTX_ARITHMETIC_LIST_H
#define PTX_ARITHMETIC_LIST_H

/* clang-format off */
#define PTX_ARITHMETIC_LIST(ROW)                                                                  \
    ROW(abs_f64, "abs.f64", "d", "d")                                                             \
    ROW(add_rn_f32, "add.f32", "w", "ww")                                                         \
    ROW(add_rn_f64, "add.f64", "d", "dd")                                                         \
    ROW(add_rn_f32, "add.rn.f32", "w", "ww")                                                      \
    ROW(add_rn_f64, "add.rn.f64", "d", "dd")                                                      \
    ROW(add_16, "add.s16", "h", "hh")                                                             \
    ROW(add_s32, "add.s32", "w", "ww")                                                            \
    ROW(add_s64, "add.s64", "d", "dd")                                                            \
    ROW(add_s64, "add.u64", "d", "dd")                                                            \
    ROW(and_b32, "and.b16", "h", "hh")                                                            \
    ROW(and_b32, "and.b32", "w", "ww")                                                            \
    ROW(and_b64, "and.b64", "d", "dd")                                                            \
    ROW(and_pred, "and.pred", "p", "pp")                                                          \
    ROW(bfe_u32, "bfe.u32", "w", "www")                                                           \
    ROW(bfi_b32, "bfi.b32", "w", "wwww")                                                          \
    ROW(bfi_b64, "bfi.b64", "d", "ddww")                                                          \
    ROW(clz_b64, "clz.b64", "w", "d")                                                             \
    ROW(cvt_f32_f16, "cvt.f32.f16", "w", "h")                                                     \
    ROW(cvt_f64_f32, "cvt.f64.f32", "d", "w")                                                     \
    ROW(cvt_rn_bf16_f32, "cvt.rn.bf16.f32", "h", "w")                                             \
    ROW(cvt_rn_bf16x2_f32, "cvt.rn.bf16x2.f32", "w", "ww")                                        \
    ROW(cvt_rn_f16_f32, "cvt.rn.f16.f32", "h", "w")                                               \
    ROW(cvt_rn_f16x2_f32, "cvt.rn.f16x2.f32", "w", "ww")                                          \
    ROW(cvt_rn_f32_f64, "cvt.rn.f32.f64", "w", "d")                                               \
    ROW(cvt_rn_f32_s32, "cvt.rn.f32.s32", "w", "w")                                               \
    ROW(cvt_rn_f32_u64, "cvt.rn.f32.u64", "w", "d")                                               \
    ROW(cvt_rn_f64_u32, "cvt.rn.f64.u32", "d", "w")                                               \
    ROW(cvt_rn_f64_u64, "cvt.rn.f64.u64", "d", "d")                                               \
    ROW(cvt_rzi_s32_f32, "cvt.rzi.s32.f32", "w", "w")                                             \
    ROW(cvt_rzi_u32_f64, "cvt.rzi.u32.f64", "w", "d")                                             \
    ROW(cvt_s32_s8, "cvt.s32.s8", "w", "w")                                                       \
    ROW(cvt_s64_s32, "cvt.s64.s32", "d", "w")                                                     \
    ROW(cvt_sat_f32_f32, "cvt.sat.f32.f32", "w", "w")                                             \
    ROW(cvt_u16_u32, "cvt.u16.u32", "h", "w")                                                     \
    ROW(cvt_u32_u16, "cvt.u32.u16", "w", "h")                                                     \
    ROW(cvt_u32_u64, "cvt.u32.u64", "w", "d")                                                     \
    ROW(cvt_u64_u32, "cvt.u64.u16", "d", "h")                                                     \
    ROW(cvt_u64_u32, "cvt.u64.u32", "d", "w")                                                     \
    ROW(div_rn_f32, "div.rn.f32", "w", "ww")                                                      \
    ROW(div_rn_f64, "div.rn.f64", "d", "dd")                                                      \
    ROW(div_u16, "div.u16", "h", "hh")                                                            \
    ROW(div_u32, "div.u32", "w", "ww")                                                            \
    ROW(div_u64, "div.u64", "d", "dd")                                                            \
    ROW(ex2_approx_ftz_f32, "ex2.approx.ftz.f32", "w", "w")                                       \
    ROW(fma_rm_f32, "fma.rm.f32", "w", "www")                                                     \
    ROW(fma_rn_f32, "fma.rn.f32", "w", "www")                                                     \
    ROW(fma_rn_f64, "fma.rn.f64", "d", "ddd")                                                     \
    ROW(mad_lo_s32, "mad.lo.s32", "w", "www")                                                     \
    ROW(mad_lo_s64, "mad.lo.s64", "d", "ddd")                                                     \
    ROW(max_f32, "max.f32", "w", "ww")                                                            \
    ROW(max_s32, "max.s32", "w", "ww")                                                            \
    ROW(max_s64, "max.s64", "d", "dd")                                                            \
    ROW(max_u32, "max.u32", "w", "ww")                                                            \
    ROW(max_u64, "max.u64", "d", "dd")                                                            \
    ROW(min_f64, "min.f64", "d", "dd")                                                            \
    ROW(min_u32, "min.u32", "w", "ww")                                                            \
    ROW(min_u64, "min.u64", "d", "dd")                                                            \
    ROW(mma_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "wwww", "wwwwwwwwww")    \
    ROW(mma_f16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "wwww", "wwwwwwwwww")       \
    ROW(mul_rn_f32, "mul.f32", "w", "ww")                                                         \
    ROW(mul_rn_f64, "mul.f64", "d", "dd")                                                         \
    ROW(mul_lo_16, "mul.lo.s16", "h", "hh")                                                       \
    ROW(mul_lo_s32, "mul.lo.s32", "w", "ww")                                                      \
    ROW(mul_lo_s64, "mul.lo.s64", "d", "dd")                                                      \
    ROW(mul_rn_f32, "mul.rn.f32", "w", "ww")                                                      \
    ROW(mul_rn_f64, "mul.rn.f64", "d", "dd")                                                      \
    ROW(mul_wide_s32, "mul.wide.s32", "d", "ww")                                                  \
    ROW(mul_lo_s32, "mul.wide.u16", "w", "hh")                                                    \
    ROW(mul_wide_u32, "mul.wide.u32", "d", "ww")                                                  \
    ROW(neg_f32, "neg.f32", "w", "w")                                                             \
    ROW(neg_f64, "neg.f64", "d", "d")                                                             \
    ROW(neg_s32, "neg.s32", "w", "w")                                                             \
    ROW(neg_s64, "neg.s64", "d", "d")                                                             \
    ROW(not_b32, "not.b32", "w", "w")                                                             \
    ROW(not_b64, "not.b64", "d", "d")                                                             \
    ROW(not_pred, "not.pred", "p", "p")                                                           \
    ROW(or_b32, "or.b32", "w", "ww")                                                              \
    ROW(or_b64, "or.b64", "d", "dd")                                                              \
    ROW(or_pred, "or.pred", "p", "pp")                                                            \
    ROW(prmt_b32, "prmt.b32", "w", "www")                                                          \
    ROW(rcp_approx_ftz_f64, "rcp.approx.ftz.f64", "d", "d")                                       \
    ROW(rcp_rn_f32, "rcp.rn.f32", "w", "w")                                                       \
    ROW(rem_u32, "rem.u32", "w", "ww")                                                            \
    ROW(rem_u64, "rem.u64", "d", "dd")                                                            \
    ROW(selp_b32, "selp.b16", "h", "hhp")                                                         \
    ROW(selp_b32, "selp.b32", "w", "wwp")                                                         \
    ROW(selp_b64, "selp.b64", "d", "ddp")                                                         \
    ROW(selp_b32, "selp.f32", "w", "wwp")                                                         \
    ROW(selp_b64, "selp.f64", "d", "ddp")                                                         \
    ROW(selp_b32, "selp.u16", "h", "hhp")                                                         \
    ROW(selp_b32, "selp.u32", "w", "wwp")                                                         \
    ROW(selp_b64, "selp.u64", "d", "ddp")                                                         \
    ROW(setp_eq_b32, "setp.eq.b32", "p", "ww")                                                    \
    ROW(setp_eq_b64, "setp.eq.b64", "p", "dd")                                                    \
    ROW(setp_eq_f32, "setp.eq.f32", "p", "ww")                                                    \
    ROW(setp_eq_b32, "setp.eq.s16", "p", "hh")                                                    \
    ROW(setp_eq_b32, "setp.eq.s32", "p", "ww")                                                    \
    ROW(setp_eq_b64, "setp.eq.s64", "p", "dd")                                                    \
    ROW(setp_equ_f64, "setp.equ.f64", "p", "dd")                                                  \
    ROW(setp_ge_s32, "setp.ge.s32", "p", "ww")                                                    \
    ROW(setp_ge_s64, "setp.ge.s64", "p", "dd")                                                    \
    ROW(setp_ge_u32, "setp.ge.u32", "p", "ww")                                                    \
    ROW(setp_ge_u64, "setp.ge.u64", "p", "dd")                                                    \
    ROW(setp_geu_f32, "setp.geu.f32", "p", "ww")                                                  \
    ROW(setp_geu_f64, "setp.geu.f64", "p", "dd")                                                  \
    ROW(setp_gt_f32, "setp.gt.f32", "p", "ww")                                                    \
    ROW(setp_gt_s32, "setp.gt.s32", "p", "ww")                                                    \
    ROW(setp_gt_s64, "setp.gt.s64", "p", "dd")                                                    \
    ROW(setp_gt_u32, "setp.gt.u16", "p", "hh")                                                    \
    ROW(setp_gt_u32, "setp.gt.u32", "p", "ww")                                                    \
    ROW(setp_gt_u64, "setp.gt.u64", "p", "dd")                                                    \
    ROW(setp_le_s32, "setp.le.s32", "p", "ww")                                                    \
    ROW(setp_le_u32, "setp.le.u32", "p", "ww")                                                    \
    ROW(setp_le_u64, "setp.le.u64", "p", "dd")                                                    \
    ROW(setp_leu_f32, "setp.leu.f32", "p", "ww")                                                  \
    ROW(setp_leu_f64, "setp.leu.f64", "p", "dd")                                                  \
    ROW(setp_lt_f32, "setp.lt.f32", "p", "ww")                                                    \
    ROW(setp_lt_s32, "setp.lt.s32", "p", "ww")                                                    \
    ROW(setp_lt_s64, "setp.lt.s64", "p", "dd")                                                    \
    ROW(setp_lt_u32, "setp.lt.u16", "p", "hh")                                                    \
    ROW(setp_lt_u32, "setp.lt.u32", "p", "ww")                                                    \
    ROW(setp_lt_u64, "setp.lt.u64", "p", "dd")                                                    \
    ROW(setp_ne_b32, "setp.ne.s16", "p", "hh")                                                    \
    ROW(setp_ne_b32, "setp.ne.s32", "p", "ww")                                                    \
    ROW(setp_ne_b64, "setp.ne.s64", "p", "dd")                                                    \
    ROW(setp_ne_b32, "setp.ne.u32", "p", "ww")                                                    \
    ROW(setp_neu_f32, "setp.neu.f32", "p", "ww")                                                  \
    ROW(shf_l_wrap_b32, "shf.l.wrap.b32", "w", "www")                                             \
    ROW(shfl_bfly, "shfl.sync.bfly.b32", "wp", "www")                                             \
    ROW(shfl_down, "shfl.sync.down.b32", "wp", "www")                                             \
    ROW(shfl_idx, "shfl.sync.idx.b32", "wp", "www")                                               \
    ROW(shfl_up, "shfl.sync.up.b32", "wp", "www")                                                 \
    ROW(shl_b32, "shl.b32", "w", "ww")                                                            \
    ROW(shl_b64, "shl.b64", "d", "dw")                                                            \
    ROW(shr_u32, "shr.u32", "w", "ww")                                                            \
    ROW(shr_u64, "shr.u64", "d", "dw")                                                            \
    ROW(sqrt_rn_f32, "sqrt.rn.f32", "w", "w")                                                     \
    ROW(sqrt_rn_f64, "sqrt.rn.f64", "d", "d")                                                     \
    ROW(sub_rn_f32, "sub.f32", "w", "ww")                                                         \
    ROW(sub_rn_f64, "sub.f64", "d", "dd")                                                         \
    ROW(sub_rn_f32, "sub.rn.f32", "w", "ww")                                                      \
    ROW(sub_rn_f64, "sub.rn.f64", "d", "dd")                                                      \
    ROW(sub_16, "sub.s16", "h", "hh")                                                             \
    ROW(sub_s32, "sub.s32", "w", "ww")                                                            \
    ROW(sub_s64, "sub.s64", "d", "dd")                                                            \
    ROW(xor_b32, "xor.b32", "w", "ww")                                                            \
    ROW(xor_b64, "xor.b64", "d", "dd")                                                            \
    ROW(xor_pred, "xor.pred", "p", "pp")
/* clang-format on */

#endif
