//! Counters of libtorch's allocators.
