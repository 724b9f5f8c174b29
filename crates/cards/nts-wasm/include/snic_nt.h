/* SPDX-License-Identifier: Apache-2.0
 *
 * A tenant's network task as a WebAssembly module: version 1 of the ABI.
 *
 * Build:
 *   clang --target=wasm32 -O2 -nostdlib -fno-builtin -Wl,--no-entry -Wl,-z,stack-size=16384 \
 *     -I DIR_OF_THIS_FILE -o task.wasm task.c
 *
 * A module exports `memory` and the functions below. It may import `snic.emit` and nothing else. One instance of it
 * works for one DAG, on one packet after the other; its memory keeps what it knows between packets.
 */
#ifndef SNIC_NT_H
#define SNIC_NT_H

#include <stdint.h>

#define SNIC_ABI_VERSION 1
/* Room before the frame in the buffer, for headers in front. */
#define SNIC_HEADROOM 128
/* Longest frame: Ethernet header to the end of the payload, without its checksum. */
#define SNIC_FRAME_MAX 9216
/* Bytes of the buffer. */
#define SNIC_BUFFER_BYTES (SNIC_HEADROOM + SNIC_FRAME_MAX)

#define SNIC_EXPORT(name) __attribute__((export_name(name), used))

/* What happens to the packet. */
#define SNIC_DROP ((uint64_t)0)
#define SNIC_CONSUME ((uint64_t)3 << 56)

/* The frame goes on: `length` bytes of the buffer, from byte `start` on. 14 to SNIC_FRAME_MAX bytes are allowed. */
static inline uint64_t snic_forward(uint32_t start, uint32_t length) {
  return (uint64_t)1 << 56 | (uint64_t)(uint16_t)start << 32 | length;
}

/* The same, back to where it came from. */
static inline uint64_t snic_reply(uint32_t start, uint32_t length) {
  return (uint64_t)2 << 56 | (uint64_t)(uint16_t)start << 32 | length;
}

/* Which way a frame goes that the module makes. */
#define SNIC_ONWARD 0
#define SNIC_BACK 1

/* Makes one more frame, a copy of these bytes; at most 4 for each packet. 1: it was made. 0: it was not, because there
 * were as many, no buffer of the card is free, or the frame is too short, too long or not in the module's memory. */
__attribute__((import_module("snic"), import_name("emit"))) extern uint32_t
snic_emit(uint32_t direction, const void *frame, uint32_t length);

/* The version of the ABI that the module is for. Called first. */
uint32_t snic_abi_version(void);

/* Where the module has its buffer of SNIC_BUFFER_BYTES bytes; the card asks once. */
void *snic_buffer(void);

/* Works on a frame of `length` bytes, which begins at byte SNIC_HEADROOM of the buffer. */
uint64_t snic_process(uint32_t length);

/* Optional. Takes a configuration: `length` bytes of JSON from the beginning of the buffer on, an object, at most
 * SNIC_FRAME_MAX bytes. 0: it is in force. Another number: the card drops this DAG's packets until the next one. A
 * module without this function takes no configuration. It is told again after a failure, before the next packet. */
uint32_t snic_configure(uint32_t length);

/* Optional, all four or none: what the module knows outlives its instance.
 *
 * The card saves an instance that has to go: another module of the NT type takes its place, as when a new bitstream
 * replaces it, or its DAG has no rows and the tenant's other DAGs need the room. The next instance of the NT type for the
 * same DAG takes the state back, after its configuration and before its first packet. A module that failed is not asked
 * to save, for nobody knows what it would. */
#define SNIC_STATE_MAX (256 << 10)

/* What snic_save answers: `length` bytes from `state` on, at most SNIC_STATE_MAX. */
static inline uint64_t snic_state(const void *state, uint32_t length) {
  return (uint64_t)(uintptr_t)state << 32 | length;
}

/* The version of the state's layout. A state of another version is not given to this module. */
uint32_t snic_state_version(void);

/* Says where the state is in the module's memory; the card copies it at once. */
uint64_t snic_save(void);

/* Where the module takes a state of `length` bytes; 0: it does not take so many. */
void *snic_restore_buffer(uint32_t length);

/* Takes the `length` bytes of state that are in that place now. They are what a module of this NT type and version has
 * saved: check them as any input. 0: they are in force. Another number: a new instance begins without them. */
uint32_t snic_restore(uint32_t length);

/* The first three functions and the buffer, once for each module. */
#define SNIC_NETWORK_TASK                                                                                              \
  static uint8_t snic_the_buffer[SNIC_BUFFER_BYTES] __attribute__((aligned(16)));                                      \
  SNIC_EXPORT("snic_abi_version") uint32_t snic_abi_version(void) { return SNIC_ABI_VERSION; }                         \
  SNIC_EXPORT("snic_buffer") void *snic_buffer(void) { return snic_the_buffer; }

#endif
