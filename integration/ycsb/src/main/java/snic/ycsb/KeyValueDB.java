package snic.ycsb;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * A store that has one value for a key: a record is a value with all of its fields. An update writes all fields
 * ({@code writeallfields=true}), for a store of values cannot change a part of one.
 */
abstract class KeyValueDB extends DB {
  /** The value, or null where there is none. */
  abstract byte[] get(String key) throws IOException;

  abstract void set(String key, byte[] value) throws IOException;

  abstract void remove(String key) throws IOException;

  String host() {
    return getProperties().getProperty("store.host", "127.0.0.1");
  }

  int number(String key, int otherwise) throws DBException {
    String text = getProperties().getProperty(key, Integer.toString(otherwise));
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException e) {
      throw new DBException(key + " = " + text + ": not a whole number", e);
    }
  }

  private interface Operation {
    Status run() throws IOException;
  }

  private static Status attempt(Operation operation) {
    try {
      return operation.run();
    } catch (IOException e) {
      System.err.println("the store fails: " + e.getMessage());
      return Status.ERROR;
    }
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    return attempt(
        () -> {
          byte[] value = get(key);
          if (value == null) {
            return Status.NOT_FOUND;
          }
          Fields.decode(value, fields, result);
          return Status.OK;
        });
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return attempt(
        () -> {
          set(key, Fields.encode(values));
          return Status.OK;
        });
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return insert(table, key, values);
  }

  @Override
  public Status delete(String table, String key) {
    return attempt(
        () -> {
          remove(key);
          return Status.OK;
        });
  }

  @Override
  public Status scan(
      String table,
      String start,
      int count,
      Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }
}
