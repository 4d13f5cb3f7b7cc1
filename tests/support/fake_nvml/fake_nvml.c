/* A libnvidia-ml.so.1 without a GPU: the functions that Lens and pynvml call, over the machine that a text file describes.
 *
 * FAKE_NVML names the file. Its lines, with fields separated by tabs:
 *
 *   driver  VERSION
 *   gpu     UUID  NAME  SERIAL  PCI_BUS_ID  MAJOR.MINOR  MEMORY_BYTES     an empty SERIAL is not supported
 *   mig     UUID  GPU_INSTANCE  COMPUTE_INSTANCE  MEMORY_BYTES            on the GPU above
 *   fault   FUNCTION  CODE  [GPU]                                         FUNCTION returns CODE, on that GPU only
 *   delay   FUNCTION  MILLISECONDS                                        * is every function
 *   hang    FUNCTION                                                      never returns, deaf to signals
 *   log     PATH                                                          gets the name of each function called
 *
 * Like the real one: functions that answer before nvmlInit or after the last nvmlShutdown say so, handles are checked,
 * buffers too small are refused, and one lock is held while a call is in the driver.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9
};
enum { MOST = 64, FIELD = 160 };

typedef struct {
    char uuid[FIELD], name[FIELD], serial[FIELD], bus[FIELD];
    int major, minor, index;
    unsigned long long memory;
    int parent; /* -1: a GPU, else the index in `devices` of the GPU that a MIG device is a part of */
    unsigned gi, ci;
} device_t;

typedef struct {
    char kind[FIELD], function[FIELD];
    int value, gpu;
} rule_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_t;

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;

static device_t devices[MOST];
static rule_t rules[MOST];
static int device_count, gpu_count, rule_count, started;
static char driver[FIELD] = "570.86.15", log_path[4096];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void copy(char *to, const char *from) { snprintf(to, FIELD, "%s", from ? from : ""); }

__attribute__((constructor)) static void read_machine(void) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    while (file && fgets(line, sizeof line, file)) {
        char *field[8] = {0}, *rest = line;
        line[strcspn(line, "\n")] = 0;
        for (int n = 0; n < 8 && rest; n++) field[n] = strsep(&rest, "\t");
        if (!strcmp(field[0], "driver")) copy(driver, field[1]);
        else if (!strcmp(field[0], "log")) snprintf(log_path, sizeof log_path, "%s", field[1]);
        else if (!strcmp(field[0], "gpu") && device_count < MOST) {
            device_t *it = &devices[device_count++];
            copy(it->uuid, field[1]); copy(it->name, field[2]); copy(it->serial, field[3]); copy(it->bus, field[4]);
            sscanf(field[5], "%d.%d", &it->major, &it->minor);
            it->memory = strtoull(field[6], NULL, 10);
            it->index = gpu_count++;
            it->parent = -1;
        } else if (!strcmp(field[0], "mig") && device_count < MOST) {
            int parent = device_count - 1;
            while (devices[parent].parent >= 0) parent = devices[parent].parent;
            device_t *it = &devices[device_count++];
            *it = devices[parent];
            it->parent = parent;
            copy(it->uuid, field[1]);
            it->gi = atoi(field[2]); it->ci = atoi(field[3]);
            it->memory = strtoull(field[4], NULL, 10);
        } else if (field[0][0] && rule_count < MOST) {
            rule_t *it = &rules[rule_count++];
            copy(it->kind, field[0]); copy(it->function, field[1]);
            it->value = field[2] ? atoi(field[2]) : 0;
            it->gpu = field[3] ? atoi(field[3]) : -1;
        }
    }
    if (file) fclose(file);
}

/* What happens to a call before it is answered: it is logged, delayed, lost, refused. */
static int enter(const char *function, const device_t *device) {
    int code = SUCCESS;
    if (log_path[0]) {
        FILE *file = fopen(log_path, "a");
        if (file) { fprintf(file, "%s\n", function); fclose(file); }
    }
    pthread_mutex_lock(&lock);
    for (int n = 0; n < rule_count; n++) {
        const rule_t *rule = &rules[n];
        if (strcmp(rule->function, "*") && strcmp(rule->function, function)) continue;
        if (!strcmp(rule->kind, "hang")) for (;;) pause();
        if (!strcmp(rule->kind, "delay")) {
            struct timespec left = {rule->value / 1000, rule->value % 1000 * 1000000L};
            while (nanosleep(&left, &left));
        }
        if (!strcmp(rule->kind, "fault") && (rule->gpu < 0 || (device && device->index == rule->gpu))) code = rule->value;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

#define ENTER(device) \
    do { \
        int code = enter(__func__, device); \
        if (code) return code; \
        if (!started) return UNINITIALIZED; \
    } while (0)

/* The same for a function of a device. */
#define ENTER_DEVICE(device) \
    do { \
        int known = (device) >= devices && (device) < devices + device_count; \
        ENTER(known ? (device) : NULL); \
        if (!known) return INVALID_ARGUMENT; \
    } while (0)

static int put(const char *text, char *buffer, unsigned size) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}

/* All spellings of it count as nvmlInit. */
int nvmlInitWithFlags(unsigned flags) {
    int code = enter("nvmlInit", NULL);
    (void)flags;
    if (!code) __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    ENTER(NULL);
    __atomic_sub_fetch(&started, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the fake";
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size) { ENTER(NULL); return put(driver, buffer, size); }

int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(NULL); *count = gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    device_t *found = NULL;
    for (int n = 0; n < device_count; n++)
        if (devices[n].parent < 0 && devices[n].index == (int)index) found = &devices[n];
    ENTER(found);
    if (!found) return INVALID_ARGUMENT;
    *device = found;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t **device) {
    ENTER(NULL);
    for (int n = 0; n < device_count; n++)
        if (!strcmp(devices[n].uuid, uuid)) { *device = &devices[n]; return SUCCESS; }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(device_t *device, unsigned *index) {
    ENTER_DEVICE(device);
    if (device->parent >= 0) return NOT_SUPPORTED;
    *index = device->index;
    return SUCCESS;
}

int nvmlDeviceGetName(device_t *device, char *buffer, unsigned size) {
    ENTER_DEVICE(device);
    return put(device->name, buffer, size);
}

int nvmlDeviceGetUUID(device_t *device, char *buffer, unsigned size) {
    ENTER_DEVICE(device);
    return put(device->uuid, buffer, size);
}

int nvmlDeviceGetSerial(device_t *device, char *buffer, unsigned size) {
    ENTER_DEVICE(device);
    return device->parent >= 0 || !device->serial[0] ? NOT_SUPPORTED : put(device->serial, buffer, size);
}

int nvmlDeviceGetPciInfo_v3(device_t *device, pci_t *pci) {
    ENTER_DEVICE(device);
    if (device->parent >= 0) return NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%.31s", device->bus);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor) {
    ENTER_DEVICE(device);
    if (device->parent >= 0) return NOT_SUPPORTED;
    *major = device->major;
    *minor = device->minor;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device_t *device, memory_t *memory) {
    ENTER_DEVICE(device);
    *memory = (memory_t){device->memory, device->memory, 0};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *memory) {
    ENTER_DEVICE(device);
    *memory = (memory_v2_t){memory->version, device->memory, 0, device->memory, 0};
    return SUCCESS;
}

static int migs(const device_t *gpu) {
    int count = 0;
    for (int n = 0; n < device_count; n++) count += devices[n].parent == gpu - devices;
    return count;
}

int nvmlDeviceGetMigMode(device_t *device, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(device);
    *current = *pending = migs(device) > 0;
    return SUCCESS;
}

/* As on an A100: room for seven, and the numbers in use have gaps. */
int nvmlDeviceGetMaxMigDeviceCount(device_t *device, unsigned *count) {
    ENTER_DEVICE(device);
    *count = migs(device) ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, unsigned index, device_t **mig) {
    ENTER_DEVICE(device);
    unsigned number = 0;
    for (int n = 0; n < device_count; n++)
        if (devices[n].parent == device - devices && index == 2 * number++) { *mig = &devices[n]; return SUCCESS; }
    return NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t *mig, device_t **device) {
    ENTER_DEVICE(mig);
    if (mig->parent < 0) return INVALID_ARGUMENT;
    *device = &devices[mig->parent];
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(device_t *device, unsigned *is) {
    ENTER_DEVICE(device);
    *is = device->parent >= 0;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(device_t *device, unsigned *id) {
    ENTER_DEVICE(device);
    if (device->parent < 0) return NOT_SUPPORTED;
    *id = device->gi;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(device_t *device, unsigned *id) {
    ENTER_DEVICE(device);
    if (device->parent < 0) return NOT_SUPPORTED;
    *id = device->ci;
    return SUCCESS;
}
