// Reads libtorch's allocators through its device-generic interface, and counts the CPU's.
//
// Nothing here throws over the C boundary and nothing needs a device's headers.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>

namespace {

// Above libtorch's default allocator (0) and its mobile ones, so that later defaults stay out.
constexpr uint8_t kPriority = 100;

std::atomic<int64_t> allocated{0};
std::atomic<int64_t> peak{0};
std::atomic<int64_t> refused{0};

void raise_peak(int64_t now) {
  int64_t highest = peak.load(std::memory_order_relaxed);
  while (now > highest && !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
  }
}

// What it takes to give an allocation back, in front of its data. libtorch's raw interface (its
// bf16 matrix products use it) wants the context to be the data itself, so it cannot stand
// elsewhere; its size keeps the alignment that libtorch's kernels count on.
struct alignas(64) Header {
  void* context;
  c10::DeleterFnPtr deleter;
  int64_t bytes;
};
static_assert(sizeof(Header) == 64, "the data behind a header keeps its alignment of 64 bytes");

void release(void* data) {
  if (data == nullptr) {
    return;
  }
  const Header header = *(static_cast<Header*>(data) - 1);
  allocated.fetch_sub(header.bytes, std::memory_order_relaxed);
  header.deleter(header.context);
}

struct CountingAllocator final : c10::Allocator {
  explicit CountingAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {}

  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) {
      return c10::DataPtr(nullptr, nullptr, &release, device);
    }
    c10::DataPtr inner;
    try {
      // What cannot be larger still is refused as it is.
      const bool fits = bytes <= std::numeric_limits<size_t>::max() - sizeof(Header);
      inner = wrapped_->allocate(fits ? bytes + sizeof(Header) : bytes);
    } catch (...) {
      refused.fetch_add(1, std::memory_order_relaxed);
      throw;
    }
    auto* header = static_cast<Header*>(inner.get());
    const auto deleter = inner.get_deleter();
    *header = Header{inner.release_context(), deleter, static_cast<int64_t>(bytes)};
    raise_peak(allocated.fetch_add(header->bytes, std::memory_order_relaxed) + header->bytes);
    void* data = header + 1;
    return c10::DataPtr(data, data, &release, device);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  c10::Allocator* wrapped_;
};

void copy_text(const std::string& text, char* out, size_t size) {
  if (size == 0) {
    return;
  }
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

constexpr size_t kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

extern "C" {

struct phasescope_device_stats {
  int64_t allocated, peak_allocated, reserved, active, requested, inactive_split, alloc_retries,
      ooms;
};

// Wraps the CPU allocator, once a process. The wrapper lives as long as the process: tensors hold
// its blocks until then.
void phasescope_cpu_install() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::SetCPUAllocator(new CountingAllocator(c10::GetCPUAllocator()), kPriority);
  });
}

void phasescope_cpu_read(int64_t* now, int64_t* highest, int64_t* ooms) {
  *now = allocated.load(std::memory_order_relaxed);
  *highest = peak.load(std::memory_order_relaxed);
  *ooms = refused.load(std::memory_order_relaxed);
}

// Reads and resets in one: what another thread allocates meanwhile is in the peak before or after.
void phasescope_cpu_read_and_reset_peak(int64_t* now, int64_t* highest, int64_t* ooms) {
  *now = allocated.load(std::memory_order_relaxed);
  *highest = peak.exchange(*now, std::memory_order_relaxed);
  *ooms = refused.load(std::memory_order_relaxed);
  raise_peak(allocated.load(std::memory_order_relaxed));
}

// 0 when read, 1 when the device is not ready, or is none.
int phasescope_device_read(int8_t type, int8_t index, phasescope_device_stats* out) {
  try {
    auto* allocator = c10::getDeviceAllocator(static_cast<c10::DeviceType>(type));
    if (!allocator->initialized()) {
      return 1;
    }
    const auto stats = allocator->getDeviceStats(index);
    out->allocated = stats.allocated_bytes[kAggregate].current;
    out->peak_allocated = stats.allocated_bytes[kAggregate].peak;
    out->reserved = stats.reserved_bytes[kAggregate].current;
    out->active = stats.active_bytes[kAggregate].current;
    out->requested = stats.requested_bytes[kAggregate].current;
    out->inactive_split = stats.inactive_split_bytes[kAggregate].current;
    out->alloc_retries = stats.num_alloc_retries;
    out->ooms = stats.num_ooms;
    return 0;
  } catch (...) {
    return 1;
  }
}

int phasescope_device_reset_peak(int8_t type, int8_t index) {
  try {
    c10::getDeviceAllocator(static_cast<c10::DeviceType>(type))->resetPeakStats(index);
    return 0;
  } catch (...) {
    return 1;
  }
}

// Asks the driver: microseconds, so not at a phase edge.
int phasescope_device_memory(int8_t type, int8_t index, uint64_t* free, uint64_t* total) {
  try {
    const auto info =
        c10::getDeviceAllocator(static_cast<c10::DeviceType>(type))->getMemoryInfo(index);
    *free = info.first;
    *total = info.second;
    return 0;
  } catch (...) {
    return 1;
  }
}

// Opens libtorch_cuda beside the libtorch that is loaded. 0 when open, 1 when there is none there,
// 2 when it could not be opened; `text` tells the path or the reason.
int phasescope_load_cuda(char* text, size_t size) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&c10::GetCPUAllocator), &info) == 0 || !info.dli_fname) {
    copy_text("the folder of libtorch could not be found", text, size);
    return 2;
  }
  std::string path(info.dli_fname);
  const auto slash = path.rfind('/');
  path = (slash == std::string::npos ? std::string() : path.substr(0, slash + 1)) +
      "libtorch_cuda.so";
  copy_text(path, text, size);
  if (FILE* file = std::fopen(path.c_str(), "rb")) {
    std::fclose(file);
  } else {
    return 1;
  }
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* reason = dlerror();
    copy_text(reason ? reason : path, text, size);
    return 2;
  }
  return 0;
}

}  // extern "C"
