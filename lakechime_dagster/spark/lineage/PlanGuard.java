package lakechime.lineage;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;

/**
 * Refuses to execute anything while a table is planned. Whatever Spark executes, by whichever API, is first made a physical plan by
 * strategies, of which this is the first: it throws, and keeps what it refused, since a program may catch what it throws. It refuses in
 * the session that plans and those cloned of it, in whatever thread, and for the thread that plans in sessions that it makes meanwhile.
 * Other sessions of the JVM are left alone.
 */
public final class PlanGuard extends SparkStrategy {
    private static final String PROPERTY = "lakechime.planning"; // of a thread and those begun by it: the name of what is open
    private static final Set HARMLESS = new HashSet(Arrays.asList(new String[] {"SetCommand", "ResetCommand", "DropTempViewCommand"}));
    private static final String[] ANSWERS = { // who plans a query that no program asked to execute, or that is kept for later
        "org.apache.spark.sql.delta.", // the log of a table, for its schema
        "org.apache.spark.sql.execution.CacheManager",
    };

    private final Map opened = new ConcurrentHashMap(); // Opened by name
    private SparkContext context;

    /** The one of this context, by a name that tells it: this one, if there was none. */
    public Object installed(SparkSession session, String name) {
        context = session.sparkContext();
        Object other = System.getProperties().putIfAbsent(name, this);
        if (other != null) return other;
        final PlanGuard guard = this;
        session.extensions().injectPlannerStrategy(new scala.runtime.AbstractFunction1() {
            public Object apply(Object made) {
                return guard;
            }
        });
        return this;
    }

    /** Refuses from now on, until it is closed. */
    public void open(SparkSession session, String name) {
        Opened one = new Opened(session);
        opened.put(name, one);
        context.setLocalProperty(PROPERTY, name);
        session.experimental().extraStrategies_$eq((scala.collection.immutable.Seq) one.strategies.prepended(new OfSession(one)));
    }

    /** A list of what was refused: by what, whether it is a command, and its dump. The session's settings and views are as they were. */
    public StringBuilder close(SparkSession session, String name) {
        context.setLocalProperty(PROPERTY, null);
        Opened one = (Opened) opened.remove(name);
        one.isOpen = false;
        session.experimental().extraStrategies_$eq(one.strategies);
        one.restore(session);
        synchronized (one.refused) {
            return new StringBuilder("[").append(String.join(",", one.refused)).append(']');
        }
    }

    public scala.collection.immutable.Seq apply(LogicalPlan plan) {
        Object name = opened.isEmpty() ? null : context.getLocalProperty(PROPERTY);
        Opened one = name == null ? null : (Opened) opened.get(name);
        if (one != null) one.check(plan);
        return (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$;
    }

    private static final class OfSession extends SparkStrategy {
        private final Opened one;

        OfSession(Opened one) {
            this.one = one;
        }

        public scala.collection.immutable.Seq apply(LogicalPlan plan) {
            if (one.isOpen) one.check(plan);
            return (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$;
        }
    }

    private static final class Opened {
        final ArrayList refused = new ArrayList();
        final scala.collection.immutable.Seq strategies;
        volatile boolean isOpen = true;
        private final Map settings;
        private final scala.collection.mutable.HashMap views;

        Opened(SparkSession session) {
            strategies = session.experimental().extraStrategies();
            settings = new HashMap(session.sessionState().conf().settings());
            views = (scala.collection.mutable.HashMap) (Object) session.sessionState().catalog().tempViews().clone();
        }

        void restore(SparkSession session) {
            Map now = session.sessionState().conf().settings();
            synchronized (now) {
                now.clear();
                now.putAll(settings);
            }
            SessionCatalog catalog = session.sessionState().catalog();
            synchronized (catalog) {
                catalog.tempViews().clear();
                catalog.tempViews().addAll(views);
            }
        }

        void check(LogicalPlan root) {
            LogicalPlan plan = root instanceof ReturnAnswer ? ((ReturnAnswer) root).child() : root;
            boolean isCommand = plan instanceof Command;
            if (isCommand && isHarmless(plan)) return;
            StackTraceElement[] stack = Thread.currentThread().getStackTrace();
            if (!isCommand && isAnswer(stack)) return;
            String by = caller(stack);
            String head = "{\"by\":" + PlanDump.text(by) + ",\"is_command\":" + isCommand + ",\"dump\":";
            synchronized (refused) {
                refused.add(head + PlanDump.of(plan, "\"name\":\"refused\",", false) + "}");
            }
            throw new UnsupportedOperationException("nothing is executed while a table is planned: " + by);
        }

        /** Whether a command changes the settings or temporary views of its session alone. */
        private static boolean isHarmless(LogicalPlan plan) {
            String name = plan.getClass().getSimpleName();
            if (name.equals("CreateViewCommand")) return String.valueOf(PlanDump.called(plan, "viewType")).startsWith("LocalTempView");
            if (name.equals("CreateTempViewUsing")) return Boolean.FALSE.equals(PlanDump.called(plan, "global"));
            return HARMLESS.contains(name);
        }

        private static boolean isAnswer(StackTraceElement[] stack) {
            boolean isShown = false;
            boolean isExecuted = false; // which shows the plan too, before it starts
            for (int i = 0; i < stack.length; i++) {
                String name = stack[i].getClassName();
                for (int k = 0; k < ANSWERS.length; k++) if (name.startsWith(ANSWERS[k])) return true;
                isShown |= stack[i].getMethodName().equals("explainString");
                isExecuted |= name.startsWith("org.apache.spark.sql.execution.SQLExecution");
            }
            return isShown && !isExecuted;
        }

        /** The method that a program called, as it knows it: the outermost of Spark's or Delta's. */
        private static String caller(StackTraceElement[] stack) {
            for (int i = stack.length - 1; i >= 0; i--) {
                String name = stack[i].getClassName();
                if (name.startsWith("org.apache.spark.sql.") || name.startsWith("io.delta.")) {
                    return name.substring(name.lastIndexOf('.') + 1) + "." + stack[i].getMethodName();
                }
            }
            return "Spark";
        }
    }
}
