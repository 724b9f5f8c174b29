package snic.ycsb;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/** A record's fields as one value: for each its name, its length, its bytes. */
final class Fields {
  private Fields() {}

  static byte[] encode(Map<String, ByteIterator> fields) {
    try {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream out = new DataOutputStream(bytes);
      for (Map.Entry<String, ByteIterator> field : new TreeMap<>(fields).entrySet()) {
        byte[] data = field.getValue().toArray();
        out.writeUTF(field.getKey());
        out.writeInt(data.length);
        out.write(data);
      }
      return bytes.toByteArray();
    } catch (IOException e) {
      throw new IllegalStateException("memory is no file", e);
    }
  }

  /** Adds the named fields to {@code result}, or all where {@code names} is null. */
  static void decode(byte[] value, Set<String> names, Map<String, ByteIterator> result)
      throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(value));
    while (in.available() > 0) {
      String name = in.readUTF();
      byte[] data = new byte[in.readInt()];
      in.readFully(data);
      if (names == null || names.contains(name)) {
        result.put(name, new ByteArrayByteIterator(data));
      }
    }
  }
}
