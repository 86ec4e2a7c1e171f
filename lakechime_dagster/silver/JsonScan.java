package lakechime.events;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What is known of a payload before any table is chosen, as `silver/event.py` finds it, in one pass over its bytes.
 *
 * Written for Janino, which knows neither generics nor lambdas.
 */
public final class JsonScan implements UDF1 {
    static final byte[] NOTHING = new byte[0];

    final byte[][] type;
    final byte[][] producer;
    final transient AtomicReference idle = new AtomicReference();

    public JsonScan() {
        this(new byte[0][], new byte[0][]);
    }

    JsonScan(byte[][] type, byte[][] producer) {
        this.type = type;
        this.producer = producer;
    }

    /** The same with one more name on the way to the type, in UTF-8. */
    public JsonScan withType(byte[] name) {
        return new JsonScan(and(type, name), producer);
    }

    /** The same with one more name on the way to the producer, in UTF-8. */
    public JsonScan withProducer(byte[] name) {
        return new JsonScan(type, and(producer, name));
    }

    /**
     * Itself as a function of Spark. A filter on its result would otherwise be pushed below it, where it is called again. Here, since
     * a client in Python takes any of several functions of one name: by chance one that knows nothing of Java's.
     */
    public UserDefinedFunction asFunction(DataType row) {
        return functions.udf((UDF1) this, row).asNondeterministic();
    }

    /** Reason, type, producer, hash and flags; no payload is an empty one. */
    public Object call(Object payload) {
        Scan scan = (Scan) idle.getAndSet(null); // no two threads have the same one, and one that fails is not used again
        if (scan == null) scan = new Scan(type, producer);
        Row row = scan.of(payload == null ? NOTHING : (byte[]) payload);
        idle.set(scan);
        return row;
    }

    /** In a task it starts again. Not private: Janino makes another method of a private one. */
    Object readResolve() {
        return new JsonScan(type, producer);
    }

    static byte[][] and(byte[][] names, byte[] name) {
        byte[][] more = (byte[][]) Arrays.copyOf(names, names.length + 1);
        more[names.length] = name;
        return more;
    }

    /** Kinds of values as bits of a set; `NAMES` are those of `schema/kinds.py`. */
    static final class Kind {
        static final int NULL = 1;
        static final int BOOL = 1 << 1;
        static final int LONG = 1 << 2;
        static final int BIGINT = 1 << 3;
        static final int FRACTION = 1 << 4;
        static final int HUGE = 1 << 5;
        static final int STRING = 1 << 6;
        static final int OBJECT = 1 << 7;
        static final int ARRAY = 1 << 8;
        static final int EMPTY_OBJECT = 1 << 9;
        static final int EMPTY_ARRAY = 1 << 10;
        static final String[] NAMES = {
            "null", "bool", "long", "bigint", "fraction", "huge", "string", "object", "array", "empty object", "empty array"
        };
    }

    /** The rows of payloads, one after another; it remembers paths and variations, and forgets all when they are too many. */
    static final class Scan {
        static final int MAX_TYPE = 512;
        static final int NOT_UTF8 = 0, NOT_JSON = 1, NOT_OBJECT = 2, TOO_DEEP = 3, NAME_TOO_LONG = 4, NUMBER_TOO_LONG = 5, PATHS_TOO_LONG = 6;
        static final int TYPE_MISSING = 7, TYPE_NOT_TEXT = 8, TYPE_EMPTY = 9, TYPE_TOO_LONG = 10, TYPE_HAS_NUL = 11;
        static final Row[] REFUSALS = refusals(new String[] {
            "not_utf8", "not_json", "not_object", "too_deep", "name_too_long", "number_too_long", "paths_too_long",
            "type_missing", "type_not_text", "type_empty", "type_too_long", "type_has_nul"
        });
        static final UTF8String[] FLAGS = {
            null, UTF8String.fromString("duplicate"), UTF8String.fromString("surrogate"), UTF8String.fromString("duplicate,surrogate")
        };

        final Tokenizer event;
        final Variations variations = new Variations();

        Scan(byte[][] type, byte[][] producer) {
            event = new Tokenizer(type, producer);
        }

        Row of(byte[] payload) {
            int refusal = event.read(payload);
            if (refusal >= 0) return REFUSALS[refusal];
            Place place = event.type;
            if (place.state != Place.TEXT) return REFUSALS[place.state == Place.MISSING ? TYPE_MISSING : TYPE_NOT_TEXT];
            byte[] type = event.text(place);
            if (hasNul(type)) return REFUSALS[TYPE_HAS_NUL];
            if (isBlank(type)) return REFUSALS[TYPE_EMPTY];
            if (lengthOf(type, MAX_TYPE) < type.length) return REFUSALS[TYPE_TOO_LONG];
            Variation variation = variations.of(event);
            int flags = (event.hasDuplicate ? 1 : 0) + (event.hasHalf ? 2 : 0);
            return RowFactory.create(new Object[] {
                null, UTF8String.fromBytes(type), producer(), variation.hash, FLAGS[flags]
            });
        }

        UTF8String producer() {
            if (event.producer.state != Place.TEXT) return null;
            byte[] text = event.text(event.producer);
            if (hasNul(text)) return null;
            return UTF8String.fromBytes(text, 0, lengthOf(text, MAX_TYPE));
        }

        static boolean hasNul(byte[] text) {
            for (int i = 0; i < text.length; i++) {
                if (text[i] == 0) return true;
            }
            return false;
        }

        static boolean isBlank(byte[] text) {
            for (int i = 0; i < text.length; i++) {
                if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n') return false;
            }
            return true;
        }

        /** How many bytes of a text its first characters are, as Python counts them. */
        static int lengthOf(byte[] text, int characters) {
            int i = 0;
            for (int left = characters; i < text.length; i++) {
                if ((text[i] & 0xC0) != 0x80 && left-- == 0) break;
            }
            return i;
        }

        static Row[] refusals(String[] reasons) {
            Row[] rows = new Row[reasons.length];
            for (int i = 0; i < rows.length; i++) {
                rows[i] = RowFactory.create(new Object[] {UTF8String.fromString(reasons[i]), null, null, null, null});
            }
            return rows;
        }
    }

    /** Where the text of a field was found in a payload: of several fields of one name the last counts. */
    static final class Place {
        static final int MISSING = 0, NOT_TEXT = 1, TEXT = 2;

        int state;
        int start;
        int stop;
        boolean isEscaped;
    }

    /** Reads a payload once, by the grammar of RFC 8259 and the bounds of `schema/event.py`, and finds its paths and kinds. */
    static final class Tokenizer {
        static final int MAX_DEPTH = 512;
        static final int MAX_NAME = 32 * 1024;
        static final int MAX_NUMBER = 1000;
        static final int MAX_PATHS = 16 << 20; // bytes of all of them together
        static final int MAX_DIGITS = 38;
        static final byte[] MOST = "9223372036854775807".getBytes(StandardCharsets.US_ASCII);
        static final byte[] LEAST = "9223372036854775808".getBytes(StandardCharsets.US_ASCII);
        static final BigDecimal BEYOND_DOUBLES = new BigDecimal(BigInteger.ONE.shiftLeft(1024).subtract(BigInteger.ONE.shiftLeft(970)));
        static final boolean IS_LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
        static final long ONES = 0x0101010101010101L;
        static final long HIGHS = 0x8080808080808080L;
        static final int KEPT = 1 << 16; // elements of an array that outlives its payload

        final Place type = new Place();
        final Place producer = new Place();
        boolean hasDuplicate;
        boolean hasHalf; // of a surrogate pair
        Path[] found = new Path[256]; // each once, with its kinds
        int count;

        private final byte[][] typeField;
        private final byte[][] producerField;
        private final Path nowhere = Path.nowhere(); // where nothing is remembered, since the payload is refused
        private Paths paths;
        private byte[] text;
        private int at;
        private int end;
        private int depth;
        private long payloads;
        private long objects;
        private long bytesOfPaths; // of those that are found
        private boolean isTooDeep;
        private boolean isNameTooLong;
        private boolean isNumberTooLong;
        private boolean isEscaped; // the string that was read last
        private boolean isHalf; // likewise
        private byte[] decoded = new byte[256];
        private int length; // of what is decoded
        private boolean[] isObject = new boolean[MAX_DEPTH + 1]; // of each open container; deeper ones than `within` knows too
        private final Path[] within = new Path[MAX_DEPTH + 1]; // an object's own path, an array's elements'
        private final Path[] before = new Path[MAX_DEPTH + 1]; // the field before this one
        private final long[] object = new long[MAX_DEPTH + 1];

        Tokenizer(byte[][] typeField, byte[][] producerField) {
            this.typeField = typeField;
            this.producerField = producerField;
            this.paths = new Paths(typeField, producerField);
        }

        /** The number of the refusal, or -1 of an event. */
        int read(byte[] payload) {
            begin(payload);
            space();
            boolean isEvent = at < end && text[at] == '{';
            boolean isJson = document(isEvent ? paths.root : nowhere);
            text = isJson ? payload : null;
            if (!isJson) return isUtf8(payload) ? Scan.NOT_JSON : Scan.NOT_UTF8;
            if (!isEvent) return Scan.NOT_OBJECT;
            if (isTooDeep) return Scan.TOO_DEEP;
            if (isNameTooLong) return Scan.NAME_TOO_LONG;
            if (isNumberTooLong) return Scan.NUMBER_TOO_LONG;
            return bytesOfPaths > MAX_PATHS ? Scan.PATHS_TOO_LONG : -1;
        }

        /** The text at a place of the payload that was read last. */
        byte[] text(Place place) {
            if (!place.isEscaped) return Arrays.copyOfRange(text, place.start, place.stop);
            decode(place.start, place.stop);
            return Arrays.copyOf(decoded, length);
        }

        private void begin(byte[] payload) {
            if (paths.isFull()) paths = new Paths(typeField, producerField);
            if (found.length > KEPT) found = new Path[256];
            if (isObject.length > KEPT) isObject = new boolean[MAX_DEPTH + 1];
            text = payload;
            end = payload.length;
            at = depth = count = 0;
            bytesOfPaths = 0;
            payloads++;
            hasDuplicate = hasHalf = isTooDeep = isNameTooLong = isNumberTooLong = false;
            type.state = typeField.length == 0 ? Place.NOT_TEXT : Place.MISSING;
            producer.state = Place.MISSING;
        }

        /** Whether the rest is one value and nothing else; `path` is that of the value. */
        private boolean document(Path path) {
            while (true) {
                if (at >= end) return false;
                int c = text[at];
                if (c == '"') {
                    if (!textAt(path)) return false;
                } else if (c == '{') {
                    open(true, path);
                    if (closes('}')) {
                        find(path, Kind.EMPTY_OBJECT);
                    } else {
                        find(path, Kind.OBJECT);
                        path = name();
                        if (path == null) return false;
                        continue;
                    }
                } else if (c == '[') {
                    Path element = depth < MAX_DEPTH ? paths.element(path) : nowhere;
                    open(false, element);
                    if (closes(']')) {
                        find(path, Kind.EMPTY_ARRAY);
                    } else {
                        find(path, Kind.ARRAY);
                        path = element;
                        continue;
                    }
                } else {
                    int kind = c == '-' || c >= '0' && c <= '9' ? number() : literal(c);
                    if (kind == 0) return false;
                    find(path, kind);
                }
                path = next();
                if (path == null) return false;
                if (path == Path.END) return at == end;
            }
        }

        /** The path of the value that follows another one, `END` after the last; null is an error. */
        private Path next() {
            while (true) {
                space();
                if (depth == 0) return Path.END;
                if (at >= end) return null;
                int c = text[at++];
                if (c == ',') {
                    space();
                    if (isObject[depth]) return name();
                    return depth <= MAX_DEPTH ? within[depth] : nowhere;
                }
                if (c != (isObject[depth] ? '}' : ']')) return null;
                depth--;
            }
        }

        private void open(boolean isObjectNow, Path path) {
            at++;
            if (++depth == isObject.length) isObject = Arrays.copyOf(isObject, 2 * depth);
            isObject[depth] = isObjectNow;
            if (depth <= MAX_DEPTH) {
                within[depth] = path;
                before[depth] = null;
                object[depth] = ++objects;
            } else {
                isTooDeep = true;
            }
            space();
        }

        private boolean closes(int bracket) {
            if (at >= end || text[at] != bracket) return false;
            at++;
            depth--;
            return true;
        }

        /** Reads a field's name and the colon after it: the path of its value; null is an error. */
        private Path name() {
            if (at >= end || text[at] != '"') return null;
            at++;
            Path path;
            if (depth > MAX_DEPTH) {
                if (!string()) return null;
                path = nowhere;
            } else {
                path = child();
                if (path == null) return null;
                if (path.object == object[depth]) hasDuplicate = true;
                path.object = object[depth];
                if (path.role != 0) meet(path);
            }
            space();
            if (at >= end || text[at] != ':') return null;
            at++;
            space();
            return path;
        }

        /** The path of a field, guessed by the field that followed the same one the last time. */
        private Path child() {
            Path parent = within[depth];
            Path last = before[depth];
            Path guess = last == null ? parent.first : last.next;
            if (guess != null && guess.isAt(text, at, end)) {
                at += guess.name.length + 1;
                before[depth] = guess;
                return guess;
            }
            int start = at;
            if (!string()) return null;
            hasHalf |= isHalf;
            Path child = named(parent, start, at - 1);
            before[depth] = child;
            if (child.isPlain) {
                if (last == null) parent.first = child;
                else if (last != nowhere) last.next = child;
            }
            return child;
        }

        private Path named(Path parent, int start, int stop) {
            byte[] bytes = text;
            if (isEscaped) {
                decode(start, stop);
                bytes = decoded;
                start = 0;
                stop = length;
            }
            isNameTooLong |= stop - start > MAX_NAME;
            return parent == nowhere || stop - start > MAX_NAME ? nowhere : paths.child(parent, bytes, start, stop);
        }

        /** A name on the way to the type or the producer takes back what another one of it led to. */
        private void meet(Path path) {
            if ((path.role & Path.TOWARDS_TYPE) != 0) type.state = (path.role & Path.IS_TYPE) != 0 ? Place.NOT_TEXT : Place.MISSING;
            if ((path.role & Path.TOWARDS_PRODUCER) != 0) {
                producer.state = (path.role & Path.IS_PRODUCER) != 0 ? Place.NOT_TEXT : Place.MISSING;
            }
        }

        private boolean textAt(Path path) {
            int start = ++at;
            if (!string()) return false;
            hasHalf |= isHalf;
            find(path, Kind.STRING);
            if (path.role != 0 && !isHalf) {
                if ((path.role & Path.IS_TYPE) != 0) put(type, start);
                if ((path.role & Path.IS_PRODUCER) != 0) put(producer, start);
            }
            return true;
        }

        private void put(Place place, int start) {
            place.state = Place.TEXT;
            place.start = start;
            place.stop = at - 1;
            place.isEscaped = isEscaped;
        }

        private void find(Path path, int kind) {
            if (path.payload == payloads) {
                path.kinds |= kind;
                return;
            }
            path.payload = payloads;
            path.kinds = kind;
            if (count == found.length) found = (Path[]) Arrays.copyOf(found, 2 * count);
            found[count++] = path;
            bytesOfPaths += path.bytes;
        }

        private void space() {
            while (at < end) {
                int c = text[at];
                if (c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
                at++;
            }
        }

        private int literal(int c) {
            if (c == 't' && follows('r', 'u', 'e')) return Kind.BOOL;
            if (c == 'n' && follows('u', 'l', 'l')) return Kind.NULL;
            if (c == 'f' && at + 4 < end && text[at + 4] == 'e' && follows('a', 'l', 's')) {
                at++;
                return Kind.BOOL;
            }
            return 0;
        }

        private boolean follows(int second, int third, int fourth) {
            if (at + 3 >= end || text[at + 1] != second || text[at + 2] != third || text[at + 3] != fourth) return false;
            at += 4;
            return true;
        }

        /** The kind of the number that begins here, known by its spelling; 0 is an error. */
        private int number() {
            int start = at;
            int first = text[at] == '-' ? ++at : at;
            if (!digits() || text[first] == '0' && at > first + 1) return 0;
            int whole = at - first;
            int exponent = 0;
            boolean isWhole = true;
            if (at < end && text[at] == '.') {
                at++;
                isWhole = false;
                if (!digits()) return 0;
            }
            if (at < end && (text[at] == 'e' || text[at] == 'E')) {
                isWhole = false;
                if (++at < end && (text[at] == '+' || text[at] == '-')) at++;
                exponent = at;
                if (!digits()) return 0;
            }
            if (at - start > MAX_NUMBER) {
                isNumberTooLong = true;
                return Kind.HUGE;
            }
            if (isWhole) return kindOfWhole(first, whole);
            boolean isSmall = whole < 200 && (exponent == 0 || at - exponent < 3);
            return isSmall || !isBeyondDoubles(first) ? Kind.FRACTION : Kind.HUGE;
        }

        private boolean digits() {
            int start = at;
            while (at < end && text[at] >= '0' && text[at] <= '9') at++;
            return at > start;
        }

        private int kindOfWhole(int first, int digits) {
            if (digits < MOST.length) return Kind.LONG;
            if (digits == MOST.length) {
                byte[] bound = first > 0 && text[first - 1] == '-' ? LEAST : MOST;
                if (Arrays.compare(text, first, at, bound, 0, digits) <= 0) return Kind.LONG;
            }
            return digits <= MAX_DIGITS ? Kind.BIGINT : Kind.HUGE;
        }

        /** Whether the number from here without its sign has no nearest double but infinity. */
        private boolean isBeyondDoubles(int first) {
            StringBuilder significant = new StringBuilder();
            int whole = -1; // digits before the point
            int zeros = 0; // before the first significant digit
            int i = first;
            for (; i < at && text[i] != 'e' && text[i] != 'E'; i++) {
                if (text[i] == '.') whole = i - first;
                else if (text[i] == '0' && significant.length() == 0) zeros++;
                else significant.append((char) text[i]);
            }
            if (significant.length() == 0) return false;
            if (whole < 0) whole = i - first;
            long magnitude = whole - zeros - 1 + (i < at ? exponent(i + 1) : 0);
            if (magnitude != 308) return magnitude > 308;
            BigDecimal number = new BigDecimal(new BigInteger(significant.toString()), significant.length() - 1);
            return number.scaleByPowerOfTen(308).compareTo(BEYOND_DOUBLES) >= 0;
        }

        private long exponent(int first) {
            boolean isNegative = text[first] == '-';
            long exponent = 0;
            for (int i = isNegative || text[first] == '+' ? first + 1 : first; i < at; i++) {
                exponent = Math.min(10 * exponent + text[i] - '0', 1000000);
            }
            return isNegative ? -exponent : exponent;
        }

        /** Whether the rest of a string is spelled well, up to its closing quote. */
        private boolean string() {
            byte[] text = this.text;
            int end = this.end;
            int at = this.at;
            isEscaped = isHalf = false;
            while (true) {
                at = plain(text, at, end);
                if (at >= end) return false;
                int c = text[at];
                if (c == '"') {
                    this.at = at + 1;
                    return true;
                }
                if (c == '\\') at = escape(at);
                else if (c < 0) at = afterCharacter(text, at, end);
                else return false;
                if (at < 0) return false;
            }
        }

        /** The next byte that is a quote, a backslash, a control character or none of ASCII. */
        private static int plain(byte[] text, int at, int end) {
            for (; at + 8 <= end; at += 8) {
                long eight = Platform.getLong(text, (long) Platform.BYTE_ARRAY_OFFSET + at);
                if (!IS_LITTLE) eight = Long.reverseBytes(eight); // borrows make false marks, after the first true one only
                long quote = eight ^ 0x22 * ONES;
                long backslash = eight ^ 0x5c * ONES;
                long special = ((quote - ONES) & ~quote | (backslash - ONES) & ~backslash | (eight - 0x20 * ONES) | eight) & HIGHS;
                if (special != 0) return at + (Long.numberOfTrailingZeros(special) >> 3);
            }
            while (at < end && text[at] >= ' ' && text[at] != '"' && text[at] != '\\') at++;
            return at;
        }

        /** Where the text goes on after an escape; -1 if it is none. */
        private int escape(int at) {
            if (at + 1 >= end) return -1;
            switch (text[at + 1]) {
                case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
                    isEscaped = true;
                    return at + 2;
                case 'u':
                    break;
                default:
                    return -1;
            }
            isEscaped = true;
            int unit = hex(at + 2);
            if (unit < 0 || unit < 0xD800 || unit > 0xDFFF) return unit < 0 ? -1 : at + 6;
            if (unit < 0xDC00 && isLow(at + 6)) return at + 12;
            isHalf = true;
            return at + 6;
        }

        /** Whether the second half of a surrogate pair is escaped here. */
        private boolean isLow(int at) {
            if (at + 1 >= end || text[at] != '\\' || text[at + 1] != 'u') return false;
            int unit = hex(at + 2);
            return unit >= 0xDC00 && unit <= 0xDFFF;
        }

        private int hex(int at) {
            if (at + 4 > end) return -1;
            int value = 0;
            for (int i = at; i < at + 4; i++) {
                int digit = Character.digit(text[i], 16);
                if (digit < 0) return -1;
                value = 16 * value + digit;
            }
            return value;
        }

        /** Decodes a string that is spelled well; half a surrogate pair becomes three bytes. */
        private void decode(int start, int stop) {
            length = 0;
            if (decoded.length < stop - start || decoded.length > KEPT) decoded = new byte[Math.max(256, stop - start)];
            for (int i = start; i < stop; i++) {
                if (text[i] != '\\') {
                    decoded[length++] = text[i];
                } else if (text[++i] != 'u') {
                    int letter = "bfnrt".indexOf(text[i]);
                    decoded[length++] = letter < 0 ? text[i] : (byte) "\b\f\n\r\t".charAt(letter);
                } else {
                    int code = hex(i + 1);
                    i += 4;
                    if (code >= 0xD800 && code < 0xDC00 && isLow(i + 1)) {
                        code = 0x10000 + (code - 0xD800 << 10) + hex(i + 3) - 0xDC00;
                        i += 6;
                    }
                    encode(code);
                }
            }
        }

        private void encode(int code) {
            if (code < 0x80) {
                decoded[length++] = (byte) code;
                return;
            }
            if (code < 0x800) {
                decoded[length++] = (byte) (0xC0 | code >> 6);
            } else {
                if (code < 0x10000) {
                    decoded[length++] = (byte) (0xE0 | code >> 12);
                } else {
                    decoded[length++] = (byte) (0xF0 | code >> 18);
                    decoded[length++] = (byte) (0x80 | code >> 12 & 0x3F);
                }
                decoded[length++] = (byte) (0x80 | code >> 6 & 0x3F);
            }
            decoded[length++] = (byte) (0x80 | code & 0x3F);
        }

        static boolean isUtf8(byte[] text) {
            int at = 0;
            while (at >= 0 && at < text.length) at = text[at] >= 0 ? at + 1 : afterCharacter(text, at, text.length);
            return at >= 0;
        }

        /** Where the text goes on after a character that is none of ASCII; -1 if UTF-8 has no such one. */
        static int afterCharacter(byte[] text, int at, int end) {
            int first = text[at] & 0xFF;
            int least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80; // or it could be spelled shorter
            int most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF; // or it is half a pair, or none of Unicode
            int more = first < 0xC2 || first > 0xF4 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
            if (more == 0 || at + more >= end) return -1;
            int second = text[at + 1] & 0xFF;
            if (second < least || second > most) return -1;
            for (int i = at + 2; i <= at + more; i++) {
                if ((text[i] & 0xC0) != 0x80) return -1;
            }
            return at + more + 1;
        }
    }

    /** A path, as `schema/variation.py` spells it: a field of its parent, or an array's elements. */
    static final class Path {
        static final int TOWARDS_TYPE = 1, IS_TYPE = 2, TOWARDS_PRODUCER = 4, IS_PRODUCER = 8;
        static final Path END = nowhere();

        final Path parent;
        final byte[] name; // null of an array's elements
        final long hash;
        final long salt;
        final boolean isPlain; // as it is spelled here it stands in texts
        final int bytes; // of it: of each name and one more, of elements two
        int level; // how many names are on the way
        int role;
        Path element;
        Path first; // field of this object, the last time
        Path next; // field after this one, the last time
        long payload; // in which it was found
        long object; // in which it was found
        int kinds; // in that payload
        Member members;

        Path(Path parent, byte[] name, long hash, long salt) {
            this.parent = parent;
            this.name = name;
            this.hash = hash;
            this.salt = salt;
            this.isPlain = name != null && isPlain(name);
            this.bytes = parent == null ? 0 : parent.bytes + (name == null ? 2 : name.length + 1);
        }

        static Path nowhere() {
            Path path = new Path(null, null, 0, 0);
            path.element = path;
            return path;
        }

        boolean isOf(Path parent, byte[] text, int start, int stop) {
            return this.parent == parent && Arrays.equals(text, start, stop, name, 0, name.length);
        }

        /** Whether a text goes on with this name and a quote. */
        boolean isAt(byte[] text, int at, int end) {
            int stop = at + name.length;
            return stop < end && text[stop] == '"' && Arrays.equals(text, at, stop, name, 0, name.length);
        }

        private static boolean isPlain(byte[] name) {
            for (int i = 0; i < name.length; i++) {
                if (name[i] >= 0 && name[i] < ' ' || name[i] == '"' || name[i] == '\\') return false;
            }
            return Tokenizer.isUtf8(name);
        }
    }

    /** The digest of a path together with a kind. */
    static final class Member {
        final int kind;
        final Digest digest;
        final Member next;

        Member(int kind, Digest digest, Member next) {
            this.kind = kind;
            this.digest = digest;
            this.next = next;
        }
    }

    /** All paths that were met, found by their parent and name. */
    static final class Paths {
        static final int MAX_PATHS = 1 << 17;
        static final int MAX_BYTES = 1 << 22; // of their names

        final Path root;
        private final byte[][] type;
        private final byte[][] producer;
        private final SplittableRandom random = new SplittableRandom(new java.security.SecureRandom().nextLong());
        private final long seed = random.nextLong() | 1; // unknown to whoever chooses names
        private Path[] table = new Path[1024];
        private int count;
        private int bytes;

        Paths(byte[][] type, byte[][] producer) {
            this.type = type;
            this.producer = producer;
            this.root = new Path(null, null, 0, random.nextLong());
            this.root.role = (type.length > 0 ? Path.TOWARDS_TYPE : 0) | (producer.length > 0 ? Path.TOWARDS_PRODUCER : 0);
        }

        boolean isFull() {
            return count > MAX_PATHS || bytes > MAX_BYTES;
        }

        Path element(Path array) {
            if (array.element == null) {
                array.element = new Path(array, null, 0, random.nextLong());
                count++;
            }
            return array.element;
        }

        Path child(Path parent, byte[] text, int start, int stop) {
            long hash = parent.salt;
            for (int i = start; i < stop; i++) hash = (hash ^ text[i]) * seed;
            hash ^= hash >>> 32;
            int slot = (int) hash & table.length - 1;
            for (; table[slot] != null; slot = slot + 1 & table.length - 1) {
                if (table[slot].hash == hash && table[slot].isOf(parent, text, start, stop)) return table[slot];
            }
            Path path = new Path(parent, Arrays.copyOfRange(text, start, stop), hash, random.nextLong());
            path.level = parent.level + 1;
            path.role = role(parent, path, type, Path.TOWARDS_TYPE, Path.IS_TYPE)
                    | role(parent, path, producer, Path.TOWARDS_PRODUCER, Path.IS_PRODUCER);
            table[slot] = path;
            bytes += stop - start;
            if (++count > table.length / 2) grow();
            return path;
        }

        private static int role(Path parent, Path path, byte[][] field, int towards, int is) {
            int level = parent.level;
            if ((parent.role & towards) == 0 || level >= field.length || !Arrays.equals(field[level], path.name)) return 0;
            return level + 1 == field.length ? towards | is : towards;
        }

        private void grow() {
            Path[] old = table;
            table = new Path[2 * old.length];
            for (int i = 0; i < old.length; i++) {
                if (old[i] == null) continue;
                int slot = (int) old[i].hash & table.length - 1;
                while (table[slot] != null) slot = slot + 1 & table.length - 1;
                table[slot] = old[i];
            }
        }
    }

    /** The first half of a SHA-256, in the order of its bytes. */
    static final class Digest implements Comparable {
        final long high;
        final long low;

        Digest(byte[] sha) {
            high = number(sha, 0);
            low = number(sha, 8);
        }

        public int compareTo(Object other) {
            Digest digest = (Digest) other;
            int order = Long.compareUnsigned(high, digest.high);
            return order != 0 ? order : Long.compareUnsigned(low, digest.low);
        }

        private static long number(byte[] sha, int from) {
            long value = 0;
            for (int i = from; i < from + 8; i++) value = value << 8 | sha[i] & 0xFF;
            return value;
        }
    }

    /** A set of paths and kinds with its hash. */
    static final class Variation {
        final long sum;
        final Path[] paths;
        final short[] kinds;
        UTF8String hash;
        Variation next;

        Variation(long sum, Tokenizer event) {
            this.sum = sum;
            this.paths = (Path[]) Arrays.copyOf(event.found, event.count);
            this.kinds = new short[event.count];
            for (int i = 0; i < kinds.length; i++) kinds[i] = (short) paths[i].kinds;
        }

        /** Whether an event has the same paths and kinds. */
        boolean isOf(Tokenizer event, long payload) {
            if (paths.length != event.count) return false;
            for (int i = 0; i < paths.length; i++) {
                if (paths[i].payload != payload || paths[i].kinds != kinds[i]) return false;
            }
            return true;
        }
    }

    /** The variations that were met, so that only a new one is hashed. */
    static final class Variations {
        static final int MAX_VARIATIONS = 1 << 14;
        static final int MAX_MEMBERS = 1 << 20; // of all of them

        private final MessageDigest sha;
        private final Variation[] table = new Variation[MAX_VARIATIONS];
        private int count;
        private int members;
        private Path root; // of the paths that all of these are made of
        private byte[] spelled = new byte[1024];
        private int length;

        Variations() {
            try {
                sha = MessageDigest.getInstance("SHA-256");
            } catch (NoSuchAlgorithmException absent) {
                throw new IllegalStateException(absent);
            }
        }

        Variation of(Tokenizer event) {
            Path[] found = event.found;
            if (root != found[0] || count >= MAX_VARIATIONS || members >= MAX_MEMBERS) forget(found[0]);
            long sum = 0;
            for (int i = 0; i < event.count; i++) sum += mixed(found[i].salt + found[i].kinds);
            int slot = (int) (sum >>> 32) & MAX_VARIATIONS - 1;
            for (Variation one = table[slot]; one != null; one = one.next) {
                if (one.sum == sum && one.isOf(event, found[0].payload)) return one;
            }
            Variation made = hashed(new Variation(sum, event));
            made.next = table[slot];
            table[slot] = made;
            count++;
            members += made.paths.length;
            return made;
        }

        private void forget(Path root) {
            this.root = root;
            Arrays.fill(table, null);
            count = members = 0;
        }

        private static long mixed(long value) {
            value = (value ^ value >>> 32) * 0xD6E8FEB86659FD93L;
            return value ^ value >>> 32;
        }

        private Variation hashed(Variation variation) {
            int n = variation.paths.length;
            int all = 0;
            for (int i = 0; i < n; i++) all += Integer.bitCount(variation.kinds[i]);
            Digest[] typed = new Digest[all];
            for (int i = 0; i < n; i++) {
                Path path = variation.paths[i];
                for (int kinds = variation.kinds[i]; kinds != 0; kinds &= kinds - 1) {
                    typed[--all] = member(path, Integer.numberOfTrailingZeros(kinds));
                }
            }
            variation.hash = hash(typed);
            return variation;
        }

        private Digest member(Path path, int kind) {
            Member member = path.members;
            while (member != null && member.kind != kind) member = member.next;
            if (member == null) path.members = member = new Member(kind, digest(Kind.NAMES[kind], path), path.members);
            return member.digest;
        }

        private Digest digest(String kind, Path path) {
            length = 0;
            for (Path one = path; one.parent != null; one = one.parent) length += room(one);
            length += kind.length();
            if (spelled.length < length || spelled.length > Tokenizer.KEPT) spelled = new byte[Math.max(1024, length)];
            int at = length;
            for (Path one = path; one.parent != null; one = one.parent) at = spell(one, at);
            for (int i = 0; i < kind.length(); i++) spelled[i] = (byte) kind.charAt(i);
            sha.update(spelled, 0, length);
            return new Digest(sha.digest());
        }

        private static int room(Path path) {
            if (path.name == null) return 2;
            int room = 1 + path.name.length;
            for (int i = 0; i < path.name.length; i++) {
                if (escaped(path.name[i]) != 0) room++;
            }
            return room;
        }

        /** Spells the last part of a path, ending before a place; from where it now stands. */
        private int spell(Path path, int stop) {
            if (path.name == null) {
                spelled[--stop] = ']';
                spelled[--stop] = '[';
                return stop;
            }
            for (int i = path.name.length - 1; i >= 0; i--) {
                int escaped = escaped(path.name[i]);
                spelled[--stop] = escaped == 0 ? path.name[i] : (byte) escaped;
                if (escaped != 0) spelled[--stop] = '~';
            }
            spelled[--stop] = '/';
            return stop;
        }

        private static int escaped(int c) {
            if (c == '~') return '0';
            if (c == '/') return '1';
            return c == '[' ? (int) '2' : 0;
        }

        private UTF8String hash(Digest[] digests) {
            Arrays.sort(digests);
            byte[] bytes = new byte[16];
            for (int i = 0; i < digests.length; i++) {
                for (int j = 0; j < 8; j++) {
                    bytes[j] = (byte) (digests[i].high >>> 56 - 8 * j);
                    bytes[8 + j] = (byte) (digests[i].low >>> 56 - 8 * j);
                }
                sha.update(bytes);
            }
            byte[] half = Arrays.copyOf(sha.digest(), 16);
            StringBuilder hex = new StringBuilder();
            for (int i = 0; i < half.length; i++) {
                hex.append(Character.forDigit(half[i] >> 4 & 15, 16)).append(Character.forDigit(half[i] & 15, 16));
            }
            return UTF8String.fromString(hex.toString());
        }
    }
}
