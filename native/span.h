// Attention over locations with a learned window: the C interface of the kernel.
//
// For every batch b, head h and query i, over the allowed keys j:
//
//     s_ij = scale · q_i · k_j  +  F_h(Δ_ij)  +  g_i · R_h(Δ_ij)      Δ_ij = xq_i − xk_j
//     e_ij = s_ij (· G_ij where the window multiplies scores)
//     w_ij = exp(e_ij) · W_ij
//     out_i = Σ_j w_ij v_j / Σ_j w_ij           lse_i = ln Σ_j w_ij
//
// with r² = ‖A_h Δ‖², G = exp(−½ r²), and W = max(G − t, 0)/(1 − t) for the continuous cut (a product over dimensions
// for a box), G or 1 inside for the hard one. F is a sum of closed forms, such as an RBF, and of a table; F and R are
// interpolated linearly from tables; for pixels on a grid R is read at the nodes.
//
// The files:
//   order.h     points are sorted once, so that neighbours in space are close in memory (leaves of a kd-tree);
//   tiles.h     keys are packed into tiles of L (the lanes of a vector), each with a bounding box, in a
//               hierarchy of boxes; a block of 64 queries finds the tiles within its reach in this tree;
//   rows.h      a row is one query and one tile; products of all rows of a tile: scores, averages and gradients;
//   window.h    Δ, r², the pairs inside, G and W of a row;
//   plain.h     the most frequent window: from the score to the weight without leaving the registers;
//   forms.h     closed forms of F(Δ) for one row, and the gradients to their parameters and to locations;
//   table.h     F(Δ) and R(Δ) for one row, and the gradients to the tables;
//   forward.h   one pass over the tiles of a block: rows with a pair inside are scored, exponentiated and added
//               up, with a running maximum that is updated only when necessary;
//   backward.h  the same pass again with lse known: pairs are recomputed, not stored;
//   processes.h Gaussian processes with many kernels, which guide the predictions of a sheet;
//   span.cpp    the C functions below: work is shared out among threads;
//   lanes.h     a vector of L floats; everything is compiled for 16, for 8 and for 4 lanes;
//   item.h      work is divided into items, one per (batch, head), or per part of its queries where there are
//               fewer than threads. Items write to separate memory; sums over items have a fixed order. So the
//               same number of threads gives the same bytes.
#pragma once

#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

// The effect of the window. `t` is its threshold, 0 for none.
enum FillinWindow { FILLIN_OPEN = 0, FILLIN_WEIGHTS = 1, FILLIN_SCORES = 2 };
enum FillinCut { FILLIN_HARD = 0, FILLIN_CONTINUOUS = 1 };
enum FillinShape { FILLIN_BALL = 0, FILLIN_BOX = 1 };

// A closed form of F, with u_d = Δ_d / ℓ_d and amplitude a. Length scales are given by their logarithms.
enum FillinFormKind {
  FILLIN_RBF = 0,       // a exp(−½ ‖u‖²)
  FILLIN_GAUSSIAN = 1,  // −½ ‖u‖²
  FILLIN_LAPLACE = 2,   // −‖u‖₁
  FILLIN_RADIAL = 3,    // −‖u‖₂
};
enum { FILLIN_MAX_FORMS = 4 };
typedef struct {
  int32_t kind, dims;      // `dims` length scales per head: dim_x, or 1 for all dimensions
  const float *log_scale;  // [heads, dims]
  const float *amplitude;  // [heads]; NULL: 1
} FillinForm;

// Rows of floats: element c of row i of head h of batch b is at data[b·batch + h·head + i·row + c].
typedef struct {
  float *data;
  int64_t batch, head, row;
} FillinRows;

// Nodes at low + step·index along each of `dims` axes of Δ (one axis, ‖Δ‖, where `radial`).
typedef struct {
  const float *values;  // [heads, size[0], …, width]; NULL: no table
  int32_t dims, radial, exact;  // `exact`: every Δ within reach is a node, and the last along each axis is beyond it
  int32_t size[3];
  float low[3], inverse_step[3];
} FillinTable;

typedef struct {
  int32_t batch, heads, queries, keys;
  int32_t width, value_width, dim_x;  // of q and k (0: no content), of v, of locations (0: none)
  int32_t threads;
  FillinRows q, k, v, out;
  float *lse;  // [batch, heads, queries]
  const float *xq, *xk;              // [batch, queries, dim_x], [batch, keys, dim_x]
  const int32_t *order_q, *order_k;  // [batch, queries], [batch, keys], from fillin_order; NULL: 0, 1, 2 …
  const uint8_t *keep;               // [batch, keys], 0: masked; NULL: no mask
  const uint8_t *pairs;              // 0: masked; key j of query i at pairs[b·batch + h·head + i·row + j]; NULL: no mask
  int64_t pairs_batch, pairs_head, pairs_row;
  float scale;
  int32_t causal;                    // query i attends to keys j ≤ i
  int32_t window, cut, shape, full;  // `full`: A has entries below its diagonal
  float threshold;
  const float *inverse;              // A [heads, dim_x, dim_x], lower triangular; NULL where the window is open
  int32_t forms;                     // closed forms of F
  FillinForm form[FILLIN_MAX_FORMS];
  FillinTable bias;                  // F: one number per node
  FillinRows g;                      // multiplied by R
  FillinTable features;              // R: `features_width` numbers per node
  int32_t features_width;
} FillinProblem;

// Gradients. NULL: not computed. Each is overwritten, not added to.
typedef struct {
  FillinRows d_out;
  const float *d_lse;  // [batch, heads, queries], or NULL
  FillinRows d_q, d_k, d_v, d_g;
  float *d_inverse;    // [heads, dim_x, dim_x]
  float *d_bias;       // as bias.values
  float *d_features;   // as features.values
  float *d_xq, *d_xk;  // [batch, queries, dim_x], [batch, keys, dim_x]: through closed forms, without a window
  float *d_log_scale[FILLIN_MAX_FORMS], *d_amplitude[FILLIN_MAX_FORMS];  // as the parameters of the forms
} FillinGradients;

// Columns with observed rows, queries, and Gaussian process kernels (processes.h). Arrays are dense.
typedef struct {
  int32_t columns, kernels, rows, queries, threads;
  const double *distance;   // [columns, rows + queries, rows]
  const double *wave;       // the same shape: sin²(π r / p), or NULL
  const double *trend;      // the same shape: the covariance of the level and the slope of every kernel
  const double *y, *error;  // [columns, rows]: values, and squares of known errors
  const double *line;       // [columns, rows + queries]: the line that was subtracted from the values, or NULL
  const uint8_t *there;     // [columns, rows]: whether the row is observed
  const double *theta;      // [columns, kernels, 7]: kind, ℓ, σ, ρ, c, λ, no_slope
  const double *fixed;      // [columns]: values that the trend takes up
  double level, freedom, jitter;  // trend at distance 0; ν
  double *out;
} FillinProcesses;

// The number of lanes of this build; the sizes of the structures above and (which = 2) the version of this interface,
// which changes with their meaning. The caller checks both.
enum { FILLIN_INTERFACE = 8 };
int32_t fillin_lanes(void);
int32_t fillin_sizes(int32_t which);

// Each writes its result and returns 0, or returns 1 if memory runs out.
int32_t fillin_order(const float *x, int32_t batch, int32_t points, int32_t dim_x, int32_t threads, int32_t *order);
int32_t fillin_forward(const FillinProblem *problem);
int32_t fillin_backward(const FillinProblem *problem, const FillinGradients *gradients);

// Log likelihoods of the kernels, out [columns, kernels]; predictions, added to out [columns, 3, rows + queries]: sums
// over the kernels of the mean, of the second moment of the latent function, and of the variance of the noise; and
// correlations at all distances by one kernel for each column, out as distance.
int32_t fillin_evidence(const FillinProcesses *processes);
int32_t fillin_predict(const FillinProcesses *processes);
int32_t fillin_correlate(const FillinProcesses *processes);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
