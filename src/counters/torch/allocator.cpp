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
#include <exception>
#include <mutex>
#include <string>

namespace {

// Above libtorch's default allocator (0) and its mobile ones, so that later defaults stay out.
constexpr uint8_t kPriority = 100;

std::atomic<int64_t> allocated{0};
std::atomic<int64_t> peak{0};
std::atomic<int64_t> refused{0};

// What one allocation needs to be given back: the wrapped allocator's own context and deleter.
struct Block {
  c10::DataPtr inner;
  int64_t bytes;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  allocated.fetch_sub(block->bytes, std::memory_order_relaxed);
  delete block;
}

struct CountingAllocator final : c10::Allocator {
  explicit CountingAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {}

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr inner;
    try {
      inner = wrapped_->allocate(bytes);
    } catch (...) {
      refused.fetch_add(1, std::memory_order_relaxed);
      throw;
    }
    void* data = inner.get();
    if (data == nullptr) {
      return inner;
    }
    const auto device = inner.device();
    auto* block = new Block{std::move(inner), static_cast<int64_t>(bytes)};
    const int64_t now =
        allocated.fetch_add(block->bytes, std::memory_order_relaxed) + block->bytes;
    int64_t highest = peak.load(std::memory_order_relaxed);
    while (now > highest &&
           !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
    }
    return c10::DataPtr(data, block, &release, device);
  }

  // The context is not the data, so the raw interface is not offered.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    wrapped_->copy_data(to, from, count);
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

void phasescope_cpu_reset_peak() {
  peak.store(allocated.load(std::memory_order_relaxed), std::memory_order_relaxed);
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
