// The C functions of span.h: they distribute the work over threads and let no exception through.
#include "span.h"

#include <atomic>

#include "backward.h"
#include "forward.h"
#include "order.h"
#include "processes.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace fillin {
namespace {

// Call `work(next)` on each of `threads` threads, where next() returns 0 … items − 1 and then −1. The threads are those
// of OpenMP, which torch shares where both use one library, so that two pools never compete for the cores.
// Return whether memory ran out.
template <class Body>
bool share_out(int items, int threads, Body work) {
  std::atomic<int> taken{0};
  std::atomic<bool> failed{false};
  auto next = [&]() {
    int item = taken++;
    return item < items ? item : -1;
  };
  if (threads > items) threads = items;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads > 1 ? threads : 1)
#endif
  {
    try {
      work(next);
    } catch (...) {  // std::bad_alloc: nothing else is thrown
      failed = true;
    }
  }
  return failed;
}

template <int D>
bool forward(const FillinProblem &p) {
  Plan plan(p);
  return share_out(plan.groups, p.threads, [&](auto next) {
    Workspace<D> space;
    for (int g = next(); g >= 0; g = next()) plan.each(g, [&](Item item) { forward_item<D>(p, item, space); });
  });
}

template <int D>
bool backward(const FillinProblem &p, const FillinGradients &to) {
  Plan plan(p);
  Shares shares(p, to, plan);
  bool failed = share_out(plan.groups, p.threads, [&](auto next) {
    Workspace<D> space;
    for (int g = next(); g >= 0; g = next())
      plan.each(g, [&](Item item) { backward_item<D>(p, to, plan, g, item, space, shares); });
  });
  if (!failed) gather_shares(p, to, plan, shares);
  return failed;
}

// Call `body` with the number of dimensions as a constant.
template <class Body>
int32_t in_dimensions(int dim_x, Body body) {
  try {
    switch (dim_x) {
      case 1: return body.template operator()<1>();
      case 2: return body.template operator()<2>();
      case 3: return body.template operator()<3>();
      case 4: return body.template operator()<4>();
    }
  } catch (...) {
  }
  return 1;
}

Observations observations(const FillinProcesses &p, size_t c) {
  size_t m = p.rows, pairs = c * (m + p.queries) * m;
  return {p.distance + pairs, p.wave ? p.wave + pairs : nullptr, p.trend + pairs, p.y + c * m,
          p.line ? p.line + c * (m + p.queries) : nullptr, p.error + c * m, p.there + c * m, p.rows, p.rows};
}

Prior prior_of(const FillinProcesses &p, size_t c) { return {p.level, p.freedom, p.fixed[c], p.jitter}; }

}  // namespace
}  // namespace fillin

extern "C" {

int32_t fillin_lanes(void) { return fillin::L; }

int32_t fillin_sizes(int32_t which) {
  return which == 0 ? sizeof(FillinProblem) : which == 1 ? sizeof(FillinGradients) : FILLIN_INTERFACE;
}

int32_t fillin_order(const float *x, int32_t batch, int32_t points, int32_t dim_x, int32_t threads, int32_t *order) {
  return fillin::share_out(batch, threads, [&](auto next) {
    for (int b = next(); b >= 0; b = next())
      fillin::order_points(x + (size_t)b * points * dim_x, points, dim_x, order + (size_t)b * points);
  });
}

int32_t fillin_forward(const FillinProblem *problem) {
  return fillin::in_dimensions(problem->dim_x, [&]<int D>() { return fillin::forward<D>(*problem); });
}

int32_t fillin_backward(const FillinProblem *problem, const FillinGradients *gradients) {
  return fillin::in_dimensions(problem->dim_x, [&]<int D>() { return fillin::backward<D>(*problem, *gradients); });
}

int32_t fillin_evidence(const FillinProcesses *p) {
  using namespace fillin;
  int blocks = (p->kernels + K - 1) / K;
  return share_out(p->columns * blocks, p->threads, [&](auto next) {
    Space space;
    for (int item = next(); item >= 0; item = next()) {
      size_t c = item / blocks, first = (size_t)(item % blocks) * K, at = c * p->kernels + first;
      int count = std::min<int>(K, p->kernels - (int)first);
      evidence(observations(*p, c), p->theta + at * THETA, count, prior_of(*p, c), space, p->out + at);
    }
  });
}

int32_t fillin_correlate(const FillinProcesses *p) {
  using namespace fillin;
  size_t count = (size_t)(p->rows + p->queries) * p->rows;
  return share_out(p->columns, p->threads, [&](auto next) {
    for (int c = next(); c >= 0; c = next())
      correlate(p->distance + c * count, p->wave ? p->wave + c * count : nullptr, p->theta + (size_t)c * THETA, count,
                p->out + c * count);
  });
}

int32_t fillin_predict(const FillinProcesses *p) {
  using namespace fillin;
  size_t rows = p->rows + p->queries;
  return share_out(p->columns, p->threads, [&](auto next) {
    Space space;
    for (int c = next(); c >= 0; c = next()) {
      double *out = p->out + 3 * rows * c;
      for (int first = 0; first < p->kernels; first += K) {
        const double *theta = p->theta + ((size_t)c * p->kernels + first) * THETA;
        int count = std::min<int>(K, p->kernels - first);
        predict(observations(*p, c), p->queries, theta, count, prior_of(*p, c), space, out, out + rows, out + 2 * rows);
      }
    }
  });
}
}
