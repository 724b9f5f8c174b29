"""What tests of NTs need from outside Rust: a wire to a network interface, and another ESP.

helper.py wire INTERFACE    frames from the interface to standard output, and back from standard input,
                            each behind its length in two bytes
helper.py esp               ESP by OpenSSL, written from RFC 4303 and RFC 4106: lines of
                            "open KEY PACKET" or "seal KEY SPI NUMBER IV PLAINTEXT NEXT" in hexadecimal
                            digits, a line with the result for each
"""

import socket
import struct
import sys
import threading

ALL_PROTOCOLS = 3
OUTGOING = 4


def wire(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    sock.bind((interface, 0))

    def send():
        while True:
            head = sys.stdin.buffer.read(2)
            if len(head) < 2:
                return
            sock.send(sys.stdin.buffer.read(struct.unpack(">H", head)[0]))

    threading.Thread(target=send, daemon=True).start()
    while True:
        frame, address = sock.recvfrom(65535)
        if address[2] != OUTGOING:
            sys.stdout.buffer.write(struct.pack(">H", len(frame)) + frame)
            sys.stdout.buffer.flush()


def esp():
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    for line in sys.stdin:
        command, key, *words = line.split()
        key = bytes.fromhex(key)
        cipher, salt = AESGCM(key[:-4]), key[-4:]
        if command == "open":
            packet = bytes.fromhex(words[0])
            header, iv, body = packet[:8], packet[8:16], packet[16:]
            plaintext = cipher.decrypt(salt + iv, body, header)
            padding, following = plaintext[-2], plaintext[-1]
            inner = plaintext[: -2 - padding]
            assert plaintext[len(inner) : -2] == bytes(range(1, padding + 1)), "padding"
            assert len(packet) % 4 == 0, "alignment"
            print(*struct.unpack(">II", header), following, inner.hex(), flush=True)
        else:
            spi, number, iv, inner, following = words
            header = struct.pack(">II", int(spi), int(number))
            inner = bytes.fromhex(inner)
            padding = -(len(inner) + 2) % 4
            plaintext = inner + bytes(range(1, padding + 1)) + bytes([padding, int(following)])
            iv = bytes.fromhex(iv)
            print((header + iv + cipher.encrypt(salt + iv, plaintext, header)).hex(), flush=True)


if sys.argv[1] == "wire":
    wire(sys.argv[2])
else:
    esp()
