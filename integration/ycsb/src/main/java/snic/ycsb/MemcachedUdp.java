package snic.ycsb;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import site.ycsb.DBException;

/**
 * memcached over UDP (memcached's protocol.txt, "UDP protocol").
 *
 * <p>A request is one datagram: memcached takes no longer ones. An answer may have several, which come in any order. A request
 * without an answer is sent again with another number after {@code store.timeout_ms}, {@code store.attempts} times in all.
 * How often that happened is printed to standard error at the end, as {@code [UDP], Retries}: YCSB has closed
 * standard output by then.
 */
public final class MemcachedUdp extends KeyValueDB {
  private static final int HEADER = 8;

  /** What a datagram of 1,476 bytes of IP has room for: 1,500 less the transport of the card. */
  private static final int REQUEST_MAX = 1_448;

  private static final AtomicLong RETRIES = new AtomicLong();

  static {
    Runtime.getRuntime()
        .addShutdownHook(new Thread(() -> System.err.println("[UDP], Retries, " + RETRIES)));
  }

  private DatagramSocket socket;
  private int attempts;
  private int request;
  private final byte[] buffer = new byte[65_536];

  @Override
  public void init() throws DBException {
    try {
      int port = number("store.port", 11_211);
      attempts = number("store.attempts", 20);
      socket = new DatagramSocket();
      socket.connect(new InetSocketAddress(InetAddress.getByName(host()), port));
      socket.setSoTimeout(number("store.timeout_ms", 200));
      request = ThreadLocalRandom.current().nextInt(1 << 16);
    } catch (IOException e) {
      throw new DBException(e);
    }
  }

  @Override
  public void cleanup() {
    socket.close();
  }

  @Override
  byte[] get(String key) throws IOException {
    byte[] answer = ask(bytes("get " + key + "\r\n"));
    String line = line(answer);
    if (line.equals("END")) {
      return null;
    }
    String[] words = line.split(" ");
    if (words.length != 4 || !words[0].equals("VALUE") || !words[1].equals(key)) {
      throw new IOException("get " + key + " was answered with: " + line);
    }
    int start = line.length() + 2;
    int length = Integer.parseInt(words[3]);
    byte[] end = bytes("\r\nEND\r\n");
    if (answer.length != start + length + end.length
        || !Arrays.equals(answer, start + length, answer.length, end, 0, end.length)) {
      throw new IOException("get " + key + ": " + answer.length + " bytes for a value of " + length);
    }
    return Arrays.copyOfRange(answer, start, start + length);
  }

  @Override
  void set(String key, byte[] value) throws IOException {
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    text.write(bytes("set " + key + " 0 0 " + value.length + "\r\n"));
    text.write(value);
    text.write(bytes("\r\n"));
    expect(text.toByteArray(), "STORED");
  }

  @Override
  void remove(String key) throws IOException {
    expect(bytes("delete " + key + "\r\n"), "DELETED");
  }

  private void expect(byte[] text, String expected) throws IOException {
    String line = line(ask(text));
    if (!line.equals(expected)) {
      throw new IOException("memcached says: " + line);
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }

  private static String line(byte[] answer) throws IOException {
    for (int at = 0; at + 1 < answer.length; at++) {
      if (answer[at] == '\r' && answer[at + 1] == '\n') {
        return new String(answer, 0, at, StandardCharsets.US_ASCII);
      }
    }
    throw new IOException("an answer without a line");
  }

  private byte[] ask(byte[] text) throws IOException {
    if (HEADER + text.length > REQUEST_MAX) {
      throw new IOException(
          "a request of " + text.length + " bytes: at most " + (REQUEST_MAX - HEADER)
              + " fit a datagram; set a smaller fieldcount or fieldlength");
    }
    for (int attempt = 0; attempt < attempts; attempt++) {
      request = (request + 1) & 0xffff;
      ByteBuffer out = ByteBuffer.allocate(HEADER + text.length);
      out.putShort((short) request).putShort((short) 0).putShort((short) 1).putShort((short) 0);
      out.put(text);
      socket.send(new DatagramPacket(out.array(), out.capacity()));
      try {
        return answer();
      } catch (SocketTimeoutException e) {
        RETRIES.incrementAndGet();
      }
    }
    throw new IOException("no answer after " + attempts + " attempts");
  }

  /** The datagrams of the answer, whatever their order. Those of earlier requests are passed over. */
  private byte[] answer() throws IOException {
    byte[][] parts = null;
    int missing = Integer.MAX_VALUE;
    while (missing > 0) {
      DatagramPacket packet = new DatagramPacket(buffer, buffer.length);
      socket.receive(packet);
      ByteBuffer in = ByteBuffer.wrap(buffer, 0, packet.getLength());
      if (in.remaining() < HEADER || (in.getShort() & 0xffff) != request) {
        continue;
      }
      int sequence = in.getShort() & 0xffff;
      int count = in.getShort() & 0xffff;
      in.getShort();
      if (parts == null) {
        parts = new byte[count][];
        missing = count;
      }
      if (count != parts.length || sequence >= count) {
        throw new IOException("datagram " + sequence + " of " + count + ", others were of " + parts.length);
      }
      if (parts[sequence] == null) {
        parts[sequence] = new byte[in.remaining()];
        in.get(parts[sequence]);
        missing--;
      }
    }
    ByteArrayOutputStream whole = new ByteArrayOutputStream();
    for (byte[] part : parts) {
      whole.write(part);
    }
    return whole.toByteArray();
  }
}
