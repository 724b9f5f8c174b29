/* SPDX-License-Identifier: Apache-2.0
 *
 * A network task in C: marks IPv4 packets with a DSCP, and drops what its hop limit ends. It numbers packets that are
 * never cut (DF is set) in their identification field, where such packets may have any value (RFC 6864): a capture
 * behind it shows what was lost. Its configuration is {"dscp": 46}; 0 to 63 are allowed. It saves the last number.
 */
#include "snic_nt.h"

SNIC_NETWORK_TASK

#define ETHERNET_BYTES 14

static uint8_t dscp;

/* What is saved. Whoever changes it gives it another version. */
#define STATE_VERSION 1
static uint16_t number;

/* The Internet checksum of a header (RFC 1071), as its field has it. */
static uint16_t checksum(const uint8_t *bytes, uint32_t count) {
  uint32_t sum = 0;
  for (uint32_t at = 0; at < count; at += 2)
    sum += (uint32_t)bytes[at] << 8 | bytes[at + 1];
  while (sum > 0xffff)
    sum = (sum & 0xffff) + (sum >> 16);
  return (uint16_t)~sum;
}

SNIC_EXPORT("snic_process") uint64_t snic_process(uint32_t length) {
  uint8_t *frame = snic_the_buffer + SNIC_HEADROOM;
  uint8_t *ip = frame + ETHERNET_BYTES;
  if (length < ETHERNET_BYTES + 20 || frame[12] != 8 || frame[13] != 0 || ip[0] >> 4 != 4)
    return snic_forward(SNIC_HEADROOM, length);
  uint32_t header = (ip[0] & 15) * 4;
  if (header < 20 || ETHERNET_BYTES + header > length || ip[8] <= 1)
    return SNIC_DROP;
  ip[1] = (uint8_t)(dscp << 2) | (ip[1] & 3);
  ip[8] -= 1;
  /* DF alone: neither more fragments nor an offset. */
  if (ip[6] == 0x40 && ip[7] == 0) {
    number++;
    ip[4] = number >> 8;
    ip[5] = number & 0xff;
  }
  ip[10] = ip[11] = 0;
  uint16_t sum = checksum(ip, header);
  ip[10] = sum >> 8;
  ip[11] = sum & 0xff;
  return snic_forward(SNIC_HEADROOM, length);
}

/* Finds the digits behind the only key. A module brings its own parser along, if it needs more. */
SNIC_EXPORT("snic_configure") uint32_t snic_configure(uint32_t length) {
  static const char key[] = "\"dscp\":";
  uint32_t at = 0, matched = 0, value = 0, digits = 0;
  while (at < length && matched < sizeof key - 1) {
    char byte = (char)snic_the_buffer[at++];
    if (byte == ' ')
      continue;
    matched = byte == key[matched] ? matched + 1 : (byte == key[0]);
  }
  if (matched < sizeof key - 1)
    return 1;
  for (; at < length; at++) {
    uint8_t byte = snic_the_buffer[at];
    if (byte >= '0' && byte <= '9' && digits < 3) {
      value = value * 10 + (byte - '0');
      digits++;
    } else if (byte != ' ' || digits > 0) {
      break;
    }
  }
  if (digits == 0 || value > 63)
    return 1;
  dscp = (uint8_t)value;
  return 0;
}

SNIC_EXPORT("snic_state_version") uint32_t snic_state_version(void) { return STATE_VERSION; }

SNIC_EXPORT("snic_save") uint64_t snic_save(void) { return snic_state(&number, sizeof number); }

/* The number is taken as it is: there is nothing to check but its length. */
SNIC_EXPORT("snic_restore_buffer") void *snic_restore_buffer(uint32_t length) {
  return length == sizeof number ? &number : 0;
}

SNIC_EXPORT("snic_restore") uint32_t snic_restore(uint32_t length) { return length != sizeof number; }
