package snic.ycsb;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import site.ycsb.DBException;

/** Redis over TCP: GET, SET and DEL in its serialisation protocol (RESP2). */
public final class RedisTcp extends KeyValueDB {
  private Socket socket;
  private DataInputStream in;
  private OutputStream out;

  @Override
  public void init() throws DBException {
    try {
      socket = new Socket(host(), number("store.port", 6_379));
      socket.setTcpNoDelay(true);
      socket.setSoTimeout(number("store.timeout_ms", 10_000));
      in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 65_536));
      out = new BufferedOutputStream(socket.getOutputStream(), 65_536);
    } catch (IOException e) {
      throw new DBException(e);
    }
  }

  @Override
  public void cleanup() throws DBException {
    try {
      socket.close();
    } catch (IOException e) {
      throw new DBException(e);
    }
  }

  @Override
  byte[] get(String key) throws IOException {
    send(bytes("GET"), bytes(key));
    int length = Integer.parseInt(line('$'));
    if (length < 0) {
      return null;
    }
    byte[] value = new byte[length];
    in.readFully(value);
    if (in.readByte() != '\r' || in.readByte() != '\n') {
      throw new IOException("a value that is longer than Redis said");
    }
    return value;
  }

  @Override
  void set(String key, byte[] value) throws IOException {
    send(bytes("SET"), bytes(key), value);
    line('+');
  }

  @Override
  void remove(String key) throws IOException {
    send(bytes("DEL"), bytes(key));
    line(':');
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }

  private void send(byte[]... words) throws IOException {
    out.write(bytes("*" + words.length + "\r\n"));
    for (byte[] word : words) {
      out.write(bytes("$" + word.length + "\r\n"));
      out.write(word);
      out.write(bytes("\r\n"));
    }
    out.flush();
  }

  /** The rest of a line that begins with this character. */
  private String line(char kind) throws IOException {
    StringBuilder line = new StringBuilder();
    for (int next = in.read(); next != '\n'; next = in.read()) {
      if (next < 0) {
        throw new EOFException("Redis has closed the connection");
      }
      line.append((char) next);
    }
    String text = line.toString().stripTrailing();
    if (text.isEmpty() || text.charAt(0) != kind) {
      throw new IOException("Redis says: " + text);
    }
    return text.substring(1);
  }
}
