// Stand-ins for the CUDA runtime and driver calls that CuPy's Cython layer makes.
//
// CuPy's modules reach `cupy_backends.cuda.api.runtime` and `.driver` through the C function
// pointers in their `__pyx_capi__`. `install` replaces those pointers before the rest of CuPy is
// imported, so all of CuPy, unchanged, runs on what follows. Each function has the signature that
// signatures.json records; the unnamed last `int` is Cython's skip_dispatch. A stand-in that fails
// raises CuPy's own exception and returns null, as the original does.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>

#include <csetjmp>
#include <csignal>
#include <cstdio>

#include "memory.hpp"
#include "scheduler.hpp"
#include "streams.hpp"

namespace {

// Of cudaError_t and CUresult.
enum Status {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailure = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
};

PyObject *runtime = nullptr, *driver = nullptr;  // CuPy's two modules
Memory memory;
Streams streams;
simt::Scheduler scheduler;
int fault = kSuccess;      // sticky: once a kernel has faulted every call fails, as on a device
std::string fault_text;    // and why
int devices = 2, current_device = 0;  // CuPy sizes its tables by the count at its import
long launches = 0;

PyObject* none() { Py_RETURN_NONE; }

PyObject* runtime_error(int status) {
  PyObject* type = PyObject_GetAttrString(runtime, "CUDARuntimeError");
  PyObject* error = PyObject_CallFunction(type, "i", status);
  if (error) PyErr_SetObject(type, error);
  Py_XDECREF(error);
  Py_XDECREF(type);
  return nullptr;
}

// CuPy's CUDADriverError asks the driver for its text, so it is made without its __init__.
PyObject* driver_error(int status) {
  const char* text = status == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE: invalid argument"
                     : status == kNotFound   ? "CUDA_ERROR_NOT_FOUND: named symbol not found"
                                             : "CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid";
  PyObject* type = PyObject_GetAttrString(driver, "CUDADriverError");
  PyObject* error = PyObject_CallMethod(type, "__new__", "Os", type, text);
  PyObject* number = PyLong_FromLong(status);
  if (error && number && PyObject_SetAttrString(error, "status", number) == 0)
    PyErr_SetObject(type, error);
  Py_XDECREF(number);
  Py_XDECREF(error);
  Py_XDECREF(type);
  return nullptr;
}

#define RETURN_IF_FAULTED \
  if (fault) return runtime_error(fault)

// -- devices ----------------------------------------------------------------------------------

enum Attribute {  // of cudaDeviceAttr
  kMaxThreadsPerBlock = 1,
  kMaxSharedPerBlock = 8,
  kWarpSize = 10,
  kProcessors = 16,
  kMajor = 75,
  kMinor = 76,
  kMaxSharedOptIn = 97,
};
constexpr int kSharedDefault = 49152, kSharedOptIn = 232448, kProcessorCount = 132;

int getDeviceCount(int) { return devices; }
int getDevice(int) { return current_device; }
PyObject* setDevice(int device, int) {
  if (device < 0 || device >= devices) return runtime_error(kInvalidDevice);
  current_device = device;
  return none();
}
PyObject* ensureContext() { return none(); }
int driverGetVersion(int) { return 13000; }
int deviceGetAttribute(int attribute, int, int) {
  switch (attribute) {
    case kMaxThreadsPerBlock: return simt::kMaxThreads;
    case kMaxSharedPerBlock: return kSharedDefault;
    case kWarpSize: return simt::kWarp;
    case kProcessors: return kProcessorCount;
    case kMajor: return 9;
    case kMinor: return 0;
    case kMaxSharedOptIn: return kSharedOptIn;
    default: return 0;
  }
}
PyObject* getDeviceProperties(int, int) {
  return Py_BuildValue(
      "{s:y,s:K,s:i,s:i,s:i,s:i,s:i,s:i,s:(iii),s:(iii),s:i,s:i,s:i,s:i}",  //
      "name", "cusim: a device simulated on the CPU",                       //
      "totalGlobalMem", (unsigned long long)memory.total(),                 //
      "sharedMemPerBlock", kSharedDefault, "regsPerBlock", 65536, "warpSize", simt::kWarp,
      "maxThreadsPerBlock", simt::kMaxThreads, "major", 9, "minor", 0,  //
      "maxThreadsDim", 1024, 1024, 64, "maxGridSize", 2147483647, 65535, 65535,
      "multiProcessorCount", kProcessorCount, "maxThreadsPerMultiProcessor", 2048,
      "sharedMemPerMultiprocessor", 233472, "sharedMemPerBlockOptin", kSharedOptIn);
}

// -- memory -----------------------------------------------------------------------------------

Pointer deviceAllocate(size_t size, int) {
  if (fault) {
    runtime_error(fault);
    return 0;
  }
  Pointer start = memory.allocate(size, Kind::kDevice, current_device);
  if (!start) runtime_error(kOutOfMemory);
  return start;
}
PyObject* release(Pointer start, int) {
  streams.drain_all();  // cudaFree waits for the device
  memory.release(start);
  return none();
}
Pointer hostAllocate(size_t size, unsigned, int) {
  Pointer start = memory.allocate(size, Kind::kPinned, current_device);
  if (!start) runtime_error(kOutOfMemory);
  return start;
}
PyObject* memGetInfo(int) {
  return Py_BuildValue("(nn)", Py_ssize_t(memory.total() - memory.used()),
                       Py_ssize_t(memory.total()));
}
void copy(Pointer to, Pointer from, size_t size) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
}
PyObject* copyNow(Pointer to, Pointer from, size_t size, int, int) {
  RETURN_IF_FAULTED;
  streams.drain_all();
  RETURN_IF_FAULTED;
  copy(to, from, size);
  return none();
}
// What the log calls a copy.
const char* direction(Pointer to, Pointer from) {
  auto on_device = [](Pointer address) {
    const Block* block = memory.find(address);
    return block && block->kind == Kind::kDevice;
  };
  if (!on_device(to)) return "memcpy to host";
  return on_device(from) ? "memcpy" : "memcpy to device";
}
// As CUDA does it: a copy from pageable memory is staged before the call returns, one into
// pageable memory is over when it returns.
PyObject* copyAsync(Pointer to, Pointer from, size_t size, int, Pointer stream, int) {
  RETURN_IF_FAULTED;
  const bool capturing = streams.at(stream).capturing;
  if (!memory.find(from) && !capturing) {
    const char* source = reinterpret_cast<const char*>(from);
    std::vector<char> staged(source, source + size);
    streams.put(stream, {[=] { copy(to, Pointer(staged.data()), size); }, "memcpy to device"});
    return none();
  }
  streams.put(stream, {[=] { copy(to, from, size); }, direction(to, from)});
  if (!memory.find(to) && !capturing) streams.drain(stream);
  return none();
}
PyObject* fillAsync(Pointer to, int byte, size_t size, Pointer stream, int) {
  RETURN_IF_FAULTED;
  streams.put(stream, {[=] { std::memset(reinterpret_cast<void*>(to), byte, size); }, "memset"});
  return none();
}
PyObject* fill(Pointer to, int byte, size_t size, int) { return fillAsync(to, byte, size, 0, 0); }
PyObject* pointerGetAttributes(Pointer address, int) {
  const Block* block = memory.find(address);
  PyObject* type = PyObject_GetAttrString(runtime, "PointerAttributes");
  PyObject* made = PyObject_CallFunction(type, "inni", block ? block->device : -2,
                                         Py_ssize_t(address), Py_ssize_t(0),
                                         block ? int(block->kind) : 0);
  Py_DECREF(type);
  return made;
}
int pointerGetMemoryType(Pointer address, int) {
  const Block* block = memory.find(address);
  return block ? int(block->kind) : 0;
}

// -- streams, events, graphs --------------------------------------------------------------------

constexpr unsigned kNonBlocking = 1;  // of the flags of a stream

Pointer streamCreate(int) { return streams.create(true); }
Pointer streamCreateWithFlags(unsigned flags, int) { return streams.create(!(flags & kNonBlocking)); }
Pointer streamCreateWithPriority(unsigned flags, int, int) {
  return streams.create(!(flags & kNonBlocking));
}
unsigned streamGetFlags(Pointer stream, int) {
  return streams.at(stream).blocking ? 0 : kNonBlocking;
}
int streamGetPriority(Pointer, int) { return 0; }
PyObject* streamDestroy(Pointer stream, int) {
  streams.destroy(stream);
  return none();
}
PyObject* streamSynchronize(Pointer handle, int) {
  Stream& stream = streams.at(handle);
  if (stream.capturing) {
    stream.broken = true;
    return runtime_error(kCaptureUnsupported);
  }
  streams.drain(handle);
  RETURN_IF_FAULTED;
  return none();
}
PyObject* deviceSynchronize(int) {
  if (streams.any_capturing()) return runtime_error(kCaptureUnsupported);
  streams.drain_all();
  RETURN_IF_FAULTED;
  return none();
}
PyObject* streamQuery(Pointer stream, int) {
  return PyLong_FromLong(streams.at(stream).queue.empty() ? kSuccess : kNotReady);
}
Event& event_at(Pointer handle) { return *reinterpret_cast<Event*>(handle); }
Pointer eventCreate(int) { return Pointer(new Event); }
Pointer eventCreateWithFlags(unsigned, int) { return Pointer(new Event); }
PyObject* eventDestroy(Pointer event, int) {
  delete &event_at(event);
  return none();
}
PyObject* eventRecord(Pointer event, Pointer stream, int) {
  streams.record(event_at(event), stream);
  return none();
}
PyObject* eventSynchronize(Pointer event, int) {
  streams.wait_for(event_at(event));
  RETURN_IF_FAULTED;
  return none();
}
PyObject* eventQuery(Pointer event, int) {
  return PyLong_FromLong(streams.happened(event_at(event)) ? kSuccess : kNotReady);
}
float eventElapsedTime(Pointer, Pointer, int) { return 0.001f; }  // ms; there is no clock to model
PyObject* streamWaitEvent(Pointer stream, Pointer handle, int, void*) {
  Event event = event_at(handle);
  streams.put(stream, {[=] { streams.wait_for(event); }, "wait for an event"});
  return none();
}
PyObject* streamBeginCapture(Pointer handle, int, void*) {
  Stream& stream = streams.at(handle);
  stream.capturing = new Graph;
  stream.broken = false;
  return none();
}
int streamIsCapturing(Pointer stream, int) { return streams.at(stream).capturing != nullptr; }
Pointer streamEndCapture(Pointer handle, int) {
  Stream& stream = streams.at(handle);
  Graph* graph = stream.capturing;
  stream.capturing = nullptr;
  if (!graph || stream.broken) {
    delete graph;
    runtime_error(graph ? kCaptureInvalidated : kIllegalState);
    return 0;
  }
  return Pointer(graph);
}
Pointer graphInstantiate(Pointer graph, int) {
  return Pointer(new Graph(*reinterpret_cast<Graph*>(graph)));
}
PyObject* graphDestroy(Pointer graph, int) {
  delete reinterpret_cast<Graph*>(graph);
  return none();
}
PyObject* graphLaunch(Pointer handle, Pointer stream, int) {
  RETURN_IF_FAULTED;
  Graph graph = *reinterpret_cast<Graph*>(handle);
  streams.put(stream, {[graph] {
                         for (auto& work : graph.works) work.run();
                       },
                       "graph of " + std::to_string(graph.works.size())});
  return none();
}
PyObject* graphUpload(Pointer, Pointer, int) { return none(); }

// -- kernels ------------------------------------------------------------------------------------

constexpr char kMagic[] = "cusim:";  // before the path of a library, in place of a cubin

struct Kernel {
  simt::Entry entry;
  const unsigned* sizes;  // the number of arguments, then the bytes of each
  bool cooperative;
  int max_shared = kSharedDefault;
  std::string name;
};

// Faults of a kernel come back to its launch. The handler is in place only while a kernel runs.
sigjmp_buf fault_return;
void on_fault(int, siginfo_t*, void*) { siglongjmp(fault_return, 1); }

void run_kernel(const Kernel& kernel, std::vector<std::vector<char>>& values, simt::Dim3 grid,
                simt::Dim3 block, size_t shared) {
  if (fault) return;
  std::vector<void*> arguments;
  for (auto& value : values) arguments.push_back(value.data());
  struct sigaction catching = {}, before;
  catching.sa_sigaction = on_fault;
  catching.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &catching, &before);
  const unsigned csr = _mm_getcsr();
  if (sigsetjmp(fault_return, 1)) {
    fault = kIllegalAddress;
    fault_text = kernel.name + ": an access outside of every array";
  } else {
    _mm_setcsr(csr | 0x8040);  // subnormals are zero, as CuPy's option -ftz=true has it
    const char* error = scheduler.run(kernel.entry, arguments.data(), grid, block, shared, kernel.cooperative);
    if (error) {
      fault = kLaunchFailure;
      fault_text = kernel.name + ": " + error;
    }
  }
  _mm_setcsr(csr);
  sigaction(SIGSEGV, &before, nullptr);
  if (fault) std::fprintf(stderr, "cusim: %s\n", fault_text.c_str());
}

Pointer moduleLoadData(PyObject* image, int) {
  char* bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(image, &bytes, &size)) return 0;
  if (std::strncmp(bytes, kMagic, sizeof kMagic - 1)) {
    driver_error(kInvalidImage);
    return 0;
  }
  void* library = dlopen(bytes + sizeof kMagic - 1, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    PyErr_SetString(PyExc_RuntimeError, dlerror());
    return 0;
  }
  auto bind = reinterpret_cast<void (*)(simt::Context*)>(dlsym(library, "simt_bind"));
  bind(&scheduler.context);
  return Pointer(library);
}
PyObject* moduleUnload(Pointer, int) { return none(); }  // a launch may still be in a queue
Pointer moduleGetFunction(Pointer module, PyObject* name, int) {
  void* library = reinterpret_cast<void*>(module);
  const std::string text = PyUnicode_AsUTF8(name);
  void* entry = dlsym(library, ("simt_entry_" + text).c_str());
  void* sizes = dlsym(library, ("simt_sizes_" + text).c_str());
  if (!entry || !sizes) {
    driver_error(kNotFound);
    return 0;
  }
  auto* kernel = new Kernel;
  kernel->entry = reinterpret_cast<simt::Entry>(entry);
  kernel->sizes = reinterpret_cast<const unsigned* (*)()>(sizes)();
  kernel->cooperative = *static_cast<const int*>(dlsym(library, "simt_cooperative"));
  kernel->name = text;
  return Pointer(kernel);
}
PyObject* launchKernel(Pointer function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, Pointer stream,
                       Pointer parameters, Pointer, int) {
  RETURN_IF_FAULTED;
  const Kernel& kernel = *reinterpret_cast<Kernel*>(function);
  const bool empty = !gx || !gy || !gz || !bx || !by || !bz;
  const bool large = gy > 65535 || gz > 65535 || bz > 64 ||
                     uint64_t(bx) * by * bz > simt::kMaxThreads || int(shared) > kernel.max_shared;
  if (empty || large) return driver_error(kInvalidValue);
  void** given = reinterpret_cast<void**>(parameters);
  std::vector<std::vector<char>> values;  // arguments are taken by value when it is launched
  for (unsigned i = 0; i < kernel.sizes[0]; i++) {
    const char* value = static_cast<const char*>(given[i]);
    values.emplace_back(value, value + kernel.sizes[1 + i]);
  }
  launches++;
  const simt::Dim3 grid{gx, gy, gz}, block{bx, by, bz};
  streams.put(stream, {[=, &kernel]() mutable { run_kernel(kernel, values, grid, block, shared); },
                       kernel.name});
  return none();
}
constexpr int kAttributeMaxThreads = 0, kAttributeMaxShared = 8;  // of CUfunction_attribute
int funcGetAttribute(int attribute, Pointer function, int) {
  if (attribute == kAttributeMaxThreads) return simt::kMaxThreads;
  if (attribute == kAttributeMaxShared) return reinterpret_cast<Kernel*>(function)->max_shared;
  return 0;
}
PyObject* funcSetAttribute(Pointer function, int attribute, int value, int) {
  if (attribute == kAttributeMaxShared) {
    if (value > kSharedOptIn) return driver_error(kInvalidValue);
    reinterpret_cast<Kernel*>(function)->max_shared = value;
  }
  return none();
}
int occupancyMaxActiveBlocks(Pointer, int, size_t, int) { return 8; }
PyObject* occupancyMaxPotential(Pointer, size_t, int, int) {
  return Py_BuildValue("(ii)", kProcessorCount * 8, 256);
}

// -- the table ----------------------------------------------------------------------------------

struct StandIn {
  const char* name;
  void* function;
};
#define STAND_IN(name, function) {name, reinterpret_cast<void*>(function)}
const StandIn kRuntime[] = {
    STAND_IN("_ensure_context", ensureContext),
    STAND_IN("deviceGetAttribute", deviceGetAttribute),
    STAND_IN("deviceSynchronize", deviceSynchronize),
    STAND_IN("driverGetVersion", driverGetVersion),
    STAND_IN("eventCreate", eventCreate),
    STAND_IN("eventCreateWithFlags", eventCreateWithFlags),
    STAND_IN("eventDestroy", eventDestroy),
    STAND_IN("eventElapsedTime", eventElapsedTime),
    STAND_IN("eventQuery", eventQuery),
    STAND_IN("eventRecord", eventRecord),
    STAND_IN("eventSynchronize", eventSynchronize),
    STAND_IN("free", release),
    STAND_IN("freeHost", release),
    STAND_IN("getDevice", getDevice),
    STAND_IN("getDeviceCount", getDeviceCount),
    STAND_IN("getDeviceProperties", getDeviceProperties),
    STAND_IN("graphDestroy", graphDestroy),
    STAND_IN("graphExecDestroy", graphDestroy),
    STAND_IN("graphInstantiate", graphInstantiate),
    STAND_IN("graphLaunch", graphLaunch),
    STAND_IN("graphUpload", graphUpload),
    STAND_IN("hostAlloc", hostAllocate),
    STAND_IN("malloc", deviceAllocate),
    STAND_IN("memGetInfo", memGetInfo),
    STAND_IN("memcpy", copyNow),
    STAND_IN("memcpyAsync", copyAsync),
    STAND_IN("memset", fill),
    STAND_IN("memsetAsync", fillAsync),
    STAND_IN("pointerGetAttributes", pointerGetAttributes),
    STAND_IN("pointerGetMemoryType", pointerGetMemoryType),
    STAND_IN("setDevice", setDevice),
    STAND_IN("streamBeginCapture", streamBeginCapture),
    STAND_IN("streamCreate", streamCreate),
    STAND_IN("streamCreateWithFlags", streamCreateWithFlags),
    STAND_IN("streamCreateWithPriority", streamCreateWithPriority),
    STAND_IN("streamDestroy", streamDestroy),
    STAND_IN("streamEndCapture", streamEndCapture),
    STAND_IN("streamGetFlags", streamGetFlags),
    STAND_IN("streamGetPriority", streamGetPriority),
    STAND_IN("streamIsCapturing", streamIsCapturing),
    STAND_IN("streamQuery", streamQuery),
    STAND_IN("streamSynchronize", streamSynchronize),
    STAND_IN("streamWaitEvent", streamWaitEvent),
};
const StandIn kDriver[] = {
    STAND_IN("funcGetAttribute", funcGetAttribute),
    STAND_IN("funcSetAttribute", funcSetAttribute),
    STAND_IN("launchKernel", launchKernel),
    STAND_IN("moduleGetFunction", moduleGetFunction),
    STAND_IN("moduleLoadData", moduleLoadData),
    STAND_IN("moduleUnload", moduleUnload),
    STAND_IN("occupancyMaxActiveBlocksPerMultiprocessor", occupancyMaxActiveBlocks),
    STAND_IN("occupancyMaxPotentialBlockSize", occupancyMaxPotential),
};

template <size_t N>
bool replace(PyObject* module, const StandIn (&table)[N]) {
  PyObject* capsules = PyObject_GetAttrString(module, "__pyx_capi__");
  if (!capsules) return false;
  for (const StandIn& entry : table) {
    PyObject* original = PyDict_GetItemString(capsules, entry.name);
    if (!original) {
      PyErr_Format(PyExc_ImportError, "cusim: this CuPy has no %s", entry.name);
      return false;
    }
    // A capsule's name is its C signature; it must outlive the capsule.
    PyObject* made = PyCapsule_New(entry.function, strdup(PyCapsule_GetName(original)), nullptr);
    if (!made || PyDict_SetItemString(capsules, entry.name, made)) return false;
    Py_DECREF(made);
  }
  Py_DECREF(capsules);
  return true;
}

// -- the Python module ----------------------------------------------------------------------------

PyObject* install(PyObject*, PyObject* arguments) {
  if (!PyArg_ParseTuple(arguments, "OO", &runtime, &driver)) return nullptr;
  Py_INCREF(runtime);
  Py_INCREF(driver);
  if (!replace(runtime, kRuntime) || !replace(driver, kDriver)) return nullptr;
  return none();
}

// Calls from Python do not go through `__pyx_capi__`; these are for them.
PyObject* py_device_count(PyObject*, PyObject*) { return PyLong_FromLong(devices); }
PyObject* py_get_device(PyObject*, PyObject*) { return PyLong_FromLong(current_device); }
PyObject* py_driver_version(PyObject*, PyObject*) { return PyLong_FromLong(driverGetVersion(0)); }
PyObject* py_memory_info(PyObject*, PyObject*) { return memGetInfo(0); }
PyObject* py_synchronize(PyObject*, PyObject*) { return deviceSynchronize(0); }
PyObject* py_set_device(PyObject*, PyObject* arguments) {
  int device;
  return PyArg_ParseTuple(arguments, "i", &device) ? setDevice(device, 0) : nullptr;
}
PyObject* py_properties(PyObject*, PyObject* arguments) {
  int device;
  if (!PyArg_ParseTuple(arguments, "i", &device)) return nullptr;
  return device < devices ? getDeviceProperties(device, 0) : runtime_error(kInvalidDevice);
}
PyObject* py_attribute(PyObject*, PyObject* arguments) {
  int attribute, device;
  if (!PyArg_ParseTuple(arguments, "ii", &attribute, &device)) return nullptr;
  return PyLong_FromLong(deviceGetAttribute(attribute, device, 0));
}
PyObject* py_memcpy(PyObject*, PyObject* arguments) {
  Py_ssize_t to, from, size;
  int kind;
  if (!PyArg_ParseTuple(arguments, "nnni", &to, &from, &size, &kind)) return nullptr;
  return copyNow(to, from, size_t(size), kind, 0);
}

PyObject* configure(PyObject*, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"lazy", "order", "limit", "log", "strict", "devices", "reset", nullptr};
  int lazy = streams.lazy, order = scheduler.order, log = streams.logging;
  int strict = scheduler.strict, reset = 0, count = devices;
  Py_ssize_t limit = Py_ssize_t(memory.limit);
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$pinppip", const_cast<char**>(names),
                                   &lazy, &order, &limit, &log, &strict, &count, &reset))
    return nullptr;
  if (!lazy) streams.drain_all();
  if (bool(log) != streams.logging) streams.log.clear();
  streams.lazy = lazy;
  streams.logging = log;
  scheduler.order = order;
  scheduler.strict = strict;
  memory.limit = size_t(limit);
  devices = count;
  if (current_device >= devices) current_device = 0;
  if (reset) {
    fault = kSuccess;
    fault_text.clear();
  }
  return none();
}

PyObject* settings(PyObject*, PyObject*) {
  return Py_BuildValue("{s:O,s:i,s:n,s:O,s:O,s:i}",                               //
                       "lazy", streams.lazy ? Py_True : Py_False,                 //
                       "order", scheduler.order, "limit", Py_ssize_t(memory.limit),
                       "log", streams.logging ? Py_True : Py_False,               //
                       "strict", scheduler.strict ? Py_True : Py_False, "devices", devices);
}

PyObject* stats(PyObject*, PyObject*) {
  PyObject* log = PyList_New(0);
  for (auto& text : streams.log) {
    PyObject* line = PyUnicode_FromString(text.c_str());
    PyList_Append(log, line);
    Py_DECREF(line);
  }
  return Py_BuildValue("{s:l,s:n,s:n,s:s,s:N}", "launches", launches, "used",
                       Py_ssize_t(memory.used()), "blocks", Py_ssize_t(memory.blocks()), "fault",
                       fault_text.c_str(), "log", log);
}

extern "C" void cusim_synchronize() { streams.drain_all(); }
PyObject* synchronize_address(PyObject*, PyObject*) {
  return PyLong_FromVoidPtr(reinterpret_cast<void*>(cusim_synchronize));
}

PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, "Replace the C functions of CuPy's runtime and driver."},
    {"set", reinterpret_cast<PyCFunction>(configure), METH_VARARGS | METH_KEYWORDS, "Change settings."},
    {"settings", settings, METH_NOARGS, "The settings in force."},
    {"stats", stats, METH_NOARGS, "What happened so far."},
    {"synchronize_address", synchronize_address, METH_NOARGS, "A C function that waits for all."},
    {"getDeviceCount", py_device_count, METH_NOARGS, ""},
    {"getDevice", py_get_device, METH_NOARGS, ""},
    {"setDevice", py_set_device, METH_VARARGS, ""},
    {"driverGetVersion", py_driver_version, METH_NOARGS, ""},
    {"memGetInfo", py_memory_info, METH_NOARGS, ""},
    {"deviceSynchronize", py_synchronize, METH_NOARGS, ""},
    {"getDeviceProperties", py_properties, METH_VARARGS, ""},
    {"deviceGetAttribute", py_attribute, METH_VARARGS, ""},
    {"memcpy", py_memcpy, METH_VARARGS, ""},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cusim", nullptr, -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__cusim() { return PyModule_Create(&definition); }
