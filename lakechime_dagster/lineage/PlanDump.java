package lakechime.lineage;

import java.lang.reflect.Method;
import java.math.BigInteger;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CommonExpressionId;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.package$;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.DataType;

/**
 * A plan as JSON: its nodes by class and parameters, without literals, rows, texts and unknown objects, which may hold
 * personal values. `plan.py` reads what it means. Nodes are in a list, each once and behind its parts, and named by {"#": place}:
 * a plan of any depth is read without recursion, and what several nodes share is dumped once.
 */
public final class PlanDump {
    private static final String TABLE = "lc:";
    private static final int ROOTS = 100; // paths of one relation that are dumped
    private static final long STACK = 512L << 20; // bytes; only what is used is taken
    private static final Set TEXTS = new HashSet(Arrays.asList(new String[] {
        "name", "alias", "colName", "fieldName", "udfName", "functionName", "prettyName", "joinType", "side", "action"
    }));
    private static final Set LEFT_OUT = new HashSet(Arrays.asList(new String[] {
        "metadata", "nullable", "qualifier", "explicitMetadata", "nonInheritableMetadataKeys", "evalMode", "timeZoneId", "origin",
        "stats", "originStats", "originConstraints", "session", "stream", "hint", "resultId", "udfDeterministic"
    }));
    private static final Set OPTIONS = new HashSet(Arrays.asList(new String[] {
        "path", "mergeSchema", "overwriteSchema", "partitionOverwriteMode"
    }));
    private static final Set PARTITIONS = new HashSet(Arrays.asList(new String[] {"partition", "staticPartitions", "partitionSpec"}));

    private static final Pattern JDBC = Pattern.compile("jdbc:(\\w+):(?:([^@?;]*)@|(?=[^@]*$))((?://)?[\\w.,:/\\[\\]-]+)((?:[?;].*)?)");
    private static final Pattern DATABASE_PROPERTY = Pattern.compile(";databaseName=([\\w-]+)", Pattern.CASE_INSENSITIVE);
    private static final Pattern DATABASE_TABLE = Pattern.compile(
        "(?:[\\w$#]+|\"[^\"]+\"|`[^`]+`|\\[[^\\]]+\\])(?:\\.(?:[\\w$#]+|\"[^\"]+\"|`[^`]+`|\\[[^\\]]+\\])){0,2}");

    private static final Map KINDS = new ConcurrentHashMap(); // by class
    private static final Map SHAPES = new ConcurrentHashMap();
    private static final Map GETTERS = new ConcurrentHashMap(); // Method, or a text that there is none, by class and name

    private final boolean hasTexts; // literals and other texts too: only for plans over empty inputs, where no text is of a row
    private final ArrayList nodes = new ArrayList();
    private final Map places = new HashMap(); // of nodes by their texts
    private final Set hidden = new HashSet(); // ids and names that Spark made of an expression, with its literals

    private final Map rows = new IdentityHashMap(); // numbers of the rows of a plan's local relations

    private PlanDump(boolean hasTexts) {
        this.hasTexts = hasTexts;
    }

    /** The dump of a plan; of one that cannot be made, why. `head` are fields of JSON, with a comma behind. */
    public static StringBuilder of(final Object plan, final String head, final boolean hasTexts) {
        final StringBuilder[] done = new StringBuilder[1];
        Runnable work = new Runnable() {
            public void run() {
                try {
                    PlanDump dump = new PlanDump(hasTexts);
                    String root = dump.value(plan);
                    done[0] = new StringBuilder("{\"v\":1,").append(head).append("\"error\":null,\"plan\":").append(root);
                    done[0].append(",\"nodes\":[").append(String.join(",", dump.nodes)).append("]}");
                } catch (StackOverflowError error) {
                    done[0] = failed(head, "the plan is too deep");
                } catch (Throwable error) {
                    done[0] = failed(head, "the plan was not read: " + error.getClass().getName());
                }
            }
        };
        Thread thread = new Thread(null, work, "lakechime-plan", STACK);
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        return done[0] == null ? failed(head, "the plan was not read: interrupted") : done[0];
    }

    /** The dump of what there is no plan of, and why. */
    public static StringBuilder failed(String head, String why) {
        return new StringBuilder("{\"v\":1,").append(head).append("\"error\":").append(text(why)).append(",\"plan\":null,\"nodes\":[]}");
    }

    private String value(Object value) {
        if (value == null) return "null";
        if (value instanceof TreeNode) return node((TreeNode) value);
        if (value instanceof scala.Option) return ((scala.Option) value).isEmpty() ? "null" : value(((scala.Option) value).get());
        switch (kindOf(value)) {
            case 0: return value.toString();
            case 1: return Long.toString(((ExprId) value).id());
            case 2: return text(((DataType) value).catalogString());
            case 3: return text(((JoinType) value).sql().toLowerCase());
            case 4: return text(((TableIdentifier) value).unquotedString());
            case 5: return catalogTable((CatalogTable) value);
            case 6: return identifier((Identifier) value);
            case 7: return "{\"rdd\":" + ((RDD) value).id() + "}";
            case 8: return text(((Enum) value).name());
            case 9: return text(value.toString());
            case 10: return Long.toString(((CommonExpressionId) value).id());
            case 11: return text(((Class) value).getName());
            case 12: return array((Object[]) value);
            case 13: return options((scala.collection.Map) value);
            case 14: return list(((scala.collection.Iterable) value).iterator());
            case 15: return list(((scala.Product) value).productIterator());
            default: return object(value);
        }
    }

    /** Looked up by class: to ask whether a Scala class has an interface costs a microsecond, each time. */
    private static int kindOf(Object value) {
        Integer known = (Integer) KINDS.get(value.getClass());
        if (known == null) KINDS.put(value.getClass(), known = Integer.valueOf(kind(value)));
        return known.intValue();
    }

    private static int kind(Object value) {
        if (value instanceof Boolean || value instanceof Integer || value instanceof Long || value instanceof Short) return 0;
        if (value instanceof ExprId) return 1;
        if (value instanceof DataType) return 2;
        if (value instanceof JoinType) return 3;
        if (value instanceof TableIdentifier) return 4;
        if (value instanceof CatalogTable) return 5;
        if (value instanceof Identifier) return 6;
        if (value instanceof RDD) return 7;
        if (value instanceof Enum) return 8;
        if (value instanceof Path) return 9;
        if (value instanceof CommonExpressionId) return 10;
        if (value instanceof Class) return 11;
        if (value instanceof Object[]) return 12;
        if (value instanceof scala.collection.Map) return 13;
        if (value instanceof scala.collection.Iterable) return 14;
        return value instanceof scala.Tuple2 || value instanceof scala.Tuple3 ? 15 : 16;
    }

    /** What is dumped of nodes of one class: the names of their parameters, and of those of a name or a column also its id. */
    private static final class Shape {
        final String[] names;
        final boolean isNamed;
        final boolean isAttribute;

        Shape(TreeNode node) {
            scala.Product product = (scala.Product) node;
            names = new String[product.productArity()];
            for (int i = 0; i < names.length; i++) {
                String name = product.productElementName(i);
                boolean isRows = node instanceof LocalRelation && name.equals("data");
                names[i] = LEFT_OUT.contains(name) || isRows ? null : name;
            }
            isNamed = node instanceof NamedExpression;
            isAttribute = node instanceof Attribute;
        }

        static Shape of(TreeNode node) {
            Shape known = (Shape) SHAPES.get(node.getClass());
            if (known == null) SHAPES.put(node.getClass(), known = new Shape(node));
            return known;
        }
    }

    private String list(scala.collection.Iterator all) {
        StringBuilder out = new StringBuilder("[");
        for (boolean first = true; all.hasNext(); first = false) {
            if (!first) out.append(',');
            out.append(value(all.next()));
        }
        return out.append(']').toString();
    }

    /** Names, such as those on the way to a column. */
    private static String texts(scala.collection.Seq names) {
        StringBuilder out = new StringBuilder("[");
        for (int i = 0; i < names.size(); i++) out.append(i > 0 ? "," : "").append(text(String.valueOf(names.apply(i))));
        return out.append(']').toString();
    }

    private String array(Object[] all) {
        StringBuilder out = new StringBuilder("[");
        for (int i = 0; i < all.length; i++) {
            if (i > 0) out.append(',');
            out.append(value(all[i]));
        }
        return out.append(']').toString();
    }

    private static String options(scala.collection.Map options) {
        StringBuilder out = new StringBuilder("{");
        scala.collection.Iterator all = options.iterator();
        while (all.hasNext()) {
            scala.Tuple2 one = (scala.Tuple2) all.next();
            String name = String.valueOf(one._1());
            String known = null;
            for (Object option : OPTIONS) if (((String) option).equalsIgnoreCase(name)) known = (String) option;
            boolean isSaid = name.equalsIgnoreCase("userMetadata");
            if (known == null && !isSaid && !name.equalsIgnoreCase("replaceWhere")) continue;
            if (out.length() > 1) out.append(',');
            if (isSaid) out.append("\"userMetadata\":").append(digest(String.valueOf(one._2())));
            else out.append(known == null ? "\"replaceWhere\":true" : text(known) + ":" + text(String.valueOf(one._2())));
        }
        return out.append('}').toString();
    }

    /** The columns of a PARTITION clause, and whether the statement gives each a value, which is not dumped. */
    private static String partitions(scala.collection.Map columns) {
        StringBuilder out = new StringBuilder("{");
        scala.collection.Iterator all = columns.iterator();
        while (all.hasNext()) {
            scala.Tuple2 one = (scala.Tuple2) all.next();
            boolean isStatic = !(one._2() instanceof scala.Option) || ((scala.Option) one._2()).isDefined();
            out.append(out.length() > 1 ? "," : "").append(text(String.valueOf(one._1()))).append(':').append(isStatic);
        }
        return out.append('}').toString();
    }

    private static String identifier(Identifier identifier) {
        StringBuilder out = new StringBuilder("[");
        String[] namespace = identifier.namespace();
        for (int i = 0; i < namespace.length; i++) out.append(text(namespace[i])).append(',');
        return out.append(text(identifier.name())).append(']').toString();
    }

    private static String catalogTable(CatalogTable table) {
        String path = asked(table.storage().locationUri(), "get");
        return "{\"identifier\":" + text(table.identifier().unquotedString()) + ",\"path\":" + path + "}";
    }

    /** Of a relation, a file index or a table of a data source, where it is; of anything else its class. */
    private static String object(Object value) {
        StringBuilder out = new StringBuilder("{\"o\":").append(text(value.getClass().getSimpleName()));
        String path = pathOf(value);
        if (path != null) out.append(",\"path\":").append(path);
        addRoots(rootsOf(value), value, out);
        if (value instanceof CatalogPlugin) out.append(",\"catalog\":").append(text(((CatalogPlugin) value).name()));
        if (value.getClass().getSimpleName().equals("JDBCRelation")) {
            Object jdbc = called(value, "jdbcOptions");
            String database = database(String.valueOf(called(jdbc, "url")));
            String table = String.valueOf(called(jdbc, "tableOrQuery")); // a query, with its values, is none
            if (database != null) out.append(",\"database\":").append(text(database));
            if (DATABASE_TABLE.matcher(table).matches()) out.append(",\"table\":").append(text(table));
        }
        return out.append('}').toString();
    }

    /** Where an URL of JDBC leads, without users, passwords and other properties; null where they cannot be distinguished for sure. */
    public static String database(String url) {
        Matcher found = JDBC.matcher(url);
        if (!found.matches() || found.group(4).indexOf('@') >= 0) return null;
        Matcher named = DATABASE_PROPERTY.matcher(found.group(4));
        boolean isHost = found.group(2) != null || found.group(3).startsWith("//");
        String where = found.group(3).startsWith("//") ? found.group(3).substring(2) : found.group(3);
        return found.group(1) + (isHost ? "://" : ":") + where + (named.find() ? "/" + named.group(1) : "");
    }

    private static String pathOf(Object value) {
        Object index = called(value, "location");
        Object of = index == null ? value : index;
        Object path = called(of, "path");
        if (path == null) path = called(called(of, "deltaLog"), "dataPath");
        if (path == null && rootsOf(value).size() == 1) path = rootsOf(value).iterator().next();
        if (path == null) path = called(called(of, "snapshotWithSchemaMode"), "dataPath");
        Object uri = called(value, "locationUri"); // of the storage of a directory
        if (path == null && uri instanceof scala.Some) path = ((scala.Some) uri).get();
        return path == null || path instanceof scala.Option ? null : text(path.toString());
    }

    /** The folders and files that a relation of files reads as one. */
    private static Set rootsOf(Object value) {
        Object index = called(value, "location");
        Object of = index == null ? value : index;
        Set found = new LinkedHashSet();
        if (called(of, "deltaLog") != null) return found; // a table of Delta is whole
        Object roots = called(of, "rootPaths");
        if (!(roots instanceof scala.collection.Seq)) return found;
        scala.collection.Iterator all = ((scala.collection.Seq) roots).iterator();
        while (all.hasNext()) found.add(String.valueOf(all.next()));
        return found;
    }

    /** Dumps them, of many what they lie in, and the folder below which the names of folders are partitions, if one was given. */
    private static void addRoots(Set roots, Object relation, StringBuilder out) {
        if (roots.isEmpty()) return;
        Set few = few(roots);
        out.append(",\"roots\":[");
        int i = 0;
        for (Object root : few) out.append(i++ > 0 ? "," : "").append(text((String) root));
        out.append(']');
        if (few != roots) out.append(",\"grouped\":true");
        Object options = called(relation, "options");
        if (!(options instanceof scala.collection.Map)) return;
        scala.collection.Iterator all = ((scala.collection.Map) options).iterator();
        while (all.hasNext()) {
            scala.Tuple2 one = (scala.Tuple2) all.next();
            if ("basePath".equalsIgnoreCase(String.valueOf(one._1()))) out.append(",\"base\":").append(text(String.valueOf(one._2())));
        }
    }

    /** These paths if they are few; else the folders that the deepest are in, until these are. */
    private static Set few(Set paths) {
        Set found = paths;
        while (found.size() > ROOTS) {
            int deepest = 0;
            for (Object path : found) deepest = Math.max(deepest, depth((String) path));
            Set above = new LinkedHashSet();
            for (Object path : found) {
                String one = (String) path;
                above.add(depth(one) < deepest ? one : one.substring(0, Math.max(one.lastIndexOf('/'), 0)));
            }
            found = above;
        }
        return found;
    }

    private static int depth(String path) {
        int found = 0;
        for (int i = 0; i < path.length(); i++) if (path.charAt(i) == '/') found++;
        return found;
    }

    /** What a public method of no parameter gives, null where there is none or it fails. */
    public static Object called(Object value, String name) {
        if (value == null) return null;
        try {
            Object getter = getter(value.getClass(), name);
            return getter instanceof Method ? ((Method) getter).invoke(value, new Object[0]) : null;
        } catch (Exception error) {
            return null;
        }
    }

    /** Looked up once: that there is none costs an exception, and that all calls on the stack, which are as many as a plan is deep. */
    private static Object getter(Class of, String name) {
        Object key = Arrays.asList(new Object[] {of, name});
        Object known = GETTERS.get(key);
        if (known != null) return known;
        try {
            Method method = of.getMethod(name, new Class[0]);
            method.setAccessible(true);
            known = method;
        } catch (Exception error) {
            known = "none";
        }
        GETTERS.put(key, known);
        return known;
    }

    private static String asked(Object value, String name) {
        Object answer = called(value, name);
        return answer == null ? "null" : text(answer.toString());
    }

    private String node(TreeNode node) {
        String text = dumped(node);
        String place = (String) places.get(text);
        if (place != null) return place;
        places.put(text, place = "{\"#\":" + nodes.size() + "}");
        nodes.add(text);
        return place;
    }

    private String dumped(TreeNode node) {
        if (node instanceof Literal) {
            Literal literal = (Literal) node;
            return "{\"n\":\"Literal\",\"f\":{\"type\":" + text(literal.dataType().catalogString())
                + ",\"isNull\":" + (literal.value() == null) + (hasTexts ? ",\"value\":" + text(literal.sql()) : "") + "}}";
        }
        if (node instanceof SubqueryAlias) {
            String alias = ((SubqueryAlias) node).identifier().name();
            if (alias.startsWith(TABLE)) {
                return "{\"n\":\"Table\",\"f\":{\"name\":" + text(alias.substring(TABLE.length())) + "}," + output((QueryPlan) node) + "}";
            }
        }
        if (node.getClass().getSimpleName().equals("ExplainCommand")) return "{\"n\":\"ExplainCommand\",\"f\":{},\"out\":[]}"; // runs nothing
        if (node instanceof Alias) hide((Alias) node);
        StringBuilder out = new StringBuilder("{\"n\":").append(text(node.getClass().getSimpleName())).append(",\"f\":{");
        fields(node, out);
        out.append('}');
        if (node instanceof QueryPlan && !isOfChild((QueryPlan) node)) out.append(',').append(output((QueryPlan) node));
        out.append('}');
        return out.toString();
    }

    /** The parameters of a node. The last one, which columns come from, is looked at first. */
    private void fields(TreeNode node, StringBuilder out) {
        Shape shape = Shape.of(node);
        scala.Product product = (scala.Product) node;
        String[] dumped = new String[shape.names.length];
        for (int i = dumped.length - 1; i >= 0; i--) {
            String name = shape.names[i];
            Object value = name == null ? null : product.productElement(i);
            if (name == null || (shape.isAttribute && value instanceof DataType)) continue;
            Object bare = value instanceof scala.Some ? ((scala.Some) value).get() : value;
            if (name.equals("targetColNameParts")) {
                dumped[i] = texts((scala.collection.Seq) value);
            } else if (PARTITIONS.contains(name) && bare instanceof scala.collection.Map) {
                dumped[i] = partitions((scala.collection.Map) bare);
            } else if (!(bare instanceof String)) {
                dumped[i] = value(value);
            } else if (name.equals("name") && shape.isNamed) {
                dumped[i] = text(shown((NamedExpression) node));
            } else {
                dumped[i] = hasTexts || TEXTS.contains(name) ? text((String) bare) : "{\"o\":\"String\"}";
            }
        }
        int start = out.length();
        for (int i = 0; i < dumped.length; i++) {
            if (dumped[i] != null) out.append(out.length() > start ? "," : "").append(text(shape.names[i])).append(':').append(dumped[i]);
        }
        if (shape.isNamed) out.append(out.length() > start ? "," : "").append("\"exprId\":").append(value(idOf((NamedExpression) node)));
        if (node instanceof LocalRelation) out.append(out.length() > start ? "," : "").append(rows((LocalRelation) node));
    }

    /**
     * Whose rows these are, without any: those of a text of SQL, or of a program; a self join repeats the former without their text.
     * Where texts are dumped, those of a text are dumped as a digest, as another row is another text.
     */
    private String rows(LocalRelation node) {
        Integer number = (Integer) rows.get(node.data());
        if (number == null) rows.put(node.data(), number = Integer.valueOf(rows.size()));
        String of = node.data().isEmpty() ? "nobody" : node.origin().sqlText().isDefined() ? "text" : "program";
        String said = hasTexts && of.equals("text") ? ",\"rowsSaid\":" + digest(node.data().mkString("\n")) : "";
        return "\"rowsOf\":" + text(of) + ",\"rowsId\":" + number + said;
    }

    /** Of a name that Spark made, which shows its literals, nothing is dumped. */
    private void hide(Alias alias) {
        boolean isPlain = alias.name().matches("\\w+");
        if (isPlain && !(alias.child() instanceof Literal)) return;
        if (!alias.name().equals(package$.MODULE$.toPrettySQL(alias.child(), true))) return;
        hidden.add(alias.exprId());
        if (!isPlain) hidden.add(alias.name());
    }

    private String shown(NamedExpression named) {
        return hidden.contains(named.name()) || hidden.contains(idOf(named)) ? "" : named.name();
    }

    private static ExprId idOf(NamedExpression named) {
        try {
            return named.exprId();
        } catch (Exception error) {
            return null; // of what is not resolved
        }
    }

    private static boolean isOfChild(QueryPlan plan) {
        try {
            return plan.children().size() == 1 && plan.output().equals(((QueryPlan) plan.children().apply(0)).output());
        } catch (Exception error) {
            return false;
        }
    }

    private String output(QueryPlan plan) {
        scala.collection.Seq output;
        try {
            output = plan.output();
        } catch (Exception error) {
            return "\"out\":null"; // of what is not resolved, and of nothing else
        }
        StringBuilder out = new StringBuilder("\"out\":[");
        for (int i = 0; i < output.size(); i++) {
            Attribute one = (Attribute) output.apply(i);
            if (i > 0) out.append(',');
            out.append('[').append(one.exprId().id()).append(',').append(text(shown(one))).append(']');
        }
        return out.append(']').toString();
    }

    /** By what a text is known again without telling it, as JSON. */
    public static String digest(String text) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(text.getBytes("UTF-8"));
            return text(new BigInteger(1, hash).toString(16));
        } catch (Exception error) {
            return "null";
        }
    }

    /** A text as JSON. */
    public static String text(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || (c >= '\ud800' && c <= '\udfff')) {
                out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(c)}));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
