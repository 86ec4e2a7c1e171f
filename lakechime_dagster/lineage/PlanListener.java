package lakechime.lineage;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;

/**
 * Keeps what is executed under the tags that are opened, until they are closed. There is one in a context for each revision, on a
 * queue of its own; what a client that was killed left open is let go when others open.
 */
public final class PlanListener extends SparkListener {
    private static final String OVERWRITES = "spark.sql.sources.partitionOverwriteMode";
    private static final String QUEUE = "lakechimeLineage";
    private static final int WATCHERS = 32;
    private static final Set SCHEMA_READERS = new HashSet(Arrays.asList(new String[] {
        "parquet", "orc", "csv", "json", "xml", "load", "table", "sql"
    }));
    private static final int CHARACTERS = 32 << 20; // of what is kept for one tag

    private final Map opened = new LinkedHashMap(); // Opened by the tag of its jobs, in their order
    private final Map running = new HashMap(); // lists of Opened by id of a root execution
    private final Map batches = new HashMap(); // Batch by id of its root execution
    private final Map inBatch = new HashMap(); // Batch by id of an execution within
    private final Map begun = new HashMap(); // by id of an execution, what of its session counts for it
    private SparkContext context;

    /** The one of this context, by a name that identifies it: this one, if there was none. */
    public Object installed(SparkContext context, String name) {
        this.context = context;
        Object other = System.getProperties().putIfAbsent(name, this);
        if (other == null) context.listenerBus().addToQueue(this, QUEUE);
        return other == null ? this : other;
    }

    public StringBuilder dump(Object plan, String head, boolean hasTexts) {
        return PlanDump.of(plan, head, hasTexts);
    }

    /**
     * Keeps from now on what is executed under a job's tag, or under a session's and no watcher's. What is opened in a thread that is
     * watched is within that watcher.
     */
    public synchronized void open(SparkContext context, String session, String job) {
        Iterator jobs = opened.keySet().iterator();
        for (int more = opened.size() + 1 - WATCHERS; more > 0; more--) {
            jobs.next();
            jobs.remove();
        }
        opened.put(job, new Opened(job, session, context.getJobTags(), lost(context)));
    }

    /** A list of dumps in the order in which their executions ended. Waits until all events so far have come. */
    public StringBuilder close(SparkContext context, String job, long milliseconds) {
        String late = null;
        try {
            context.listenerBus().waitUntilEmpty(milliseconds);
        } catch (Exception error) {
            late = "Spark's events did not come in time";
        }
        synchronized (this) {
            Opened one = (Opened) opened.remove(job);
            if (one == null) return new StringBuilder("[").append(PlanDump.failed("\"name\":null,", "what was executed was let go")).append(']');
            int open = leave(one);
            if (late != null) one.note(late);
            if (lost(context) > one.lost) one.note("Spark dropped events");
            if (open > 0) one.note(open + " statements that had begun had not ended");
            if (one.left > 0) one.note(one.left + " plans were too large to keep");
            return new StringBuilder("[").append(String.join(",", one.dumps)).append(']');
        }
    }

    /** Lets go of what a watcher has begun and not ended; how much that is. */
    private int leave(Opened one) {
        int found = 0;
        Iterator all = running.values().iterator();
        while (all.hasNext()) {
            ArrayList watchers = (ArrayList) all.next();
            if (watchers.remove(one)) found++;
            if (watchers.isEmpty()) all.remove();
        }
        return found;
    }

    private static long lost(SparkContext context) {
        String name = "queue." + QUEUE + ".numDroppedEvents";
        return context.listenerBus().metrics().metricRegistry().counter(name).getCount();
    }

    public void onOtherEvent(SparkListenerEvent event) {
        if (event instanceof SparkListenerSQLExecutionStart) {
            started((SparkListenerSQLExecutionStart) event);
        } else if (event instanceof SparkListenerSQLExecutionEnd) {
            ended((SparkListenerSQLExecutionEnd) event);
        }
    }

    /** A job of no statement, such as of an RDD: there is no plan of it. */
    public synchronized void onJobStart(SparkListenerJobStart event) {
        if (event.properties() == null || event.properties().getProperty("spark.sql.execution.id") != null) return;
        if (event.properties().getProperty("sql.streaming.queryId") != null) return; // a stream's own, outside of its batches
        String tags = event.properties().getProperty("spark.job.tags");
        if (tags == null || isOfSchema(event)) return;
        for (Object one : of(new HashSet(Arrays.asList(tags.split(","))))) {
            ((Opened) one).add(PlanDump.failed("\"name\":\"job\",", "a job of an RDD"), false);
        }
    }

    /** Whether a job looks for the schema of files, of which a program sees nothing but names and types. */
    private static boolean isOfSchema(SparkListenerJobStart event) {
        for (int i = 0; i < event.stageInfos().size(); i++) {
            String name = String.valueOf(((StageInfo) event.stageInfos().apply(i)).name());
            if (!SCHEMA_READERS.contains(name.split(" ")[0])) return false;
        }
        return true;
    }

    private synchronized void started(SparkListenerSQLExecutionStart start) {
        Object root = start.rootExecutionId().isEmpty() ? null : start.rootExecutionId().get();
        Long id = Long.valueOf(start.executionId());
        if (root != null && !root.equals(id)) {
            Batch batch = (Batch) batches.get(root);
            if (batch == null) return;
            batch.started(id);
            inBatch.put(id, batch);
        } else {
            HashSet tags = new HashSet();
            scala.collection.Iterator all = start.jobTags().iterator();
            while (all.hasNext()) tags.add(all.next());
            ArrayList found = of(tags);
            if (found.isEmpty()) return;
            running.put(id, found);
            if (isOfStream(start)) batches.put(id, new Batch());
        }
        begun.put(id, "dynamic".equalsIgnoreCase(setting(start, OVERWRITES)) ? "\"dynamic\":true," : "");
    }

    /** A setting as it was then, not as it is by now; null where there was none, or none that events may show. */
    private String setting(SparkListenerSQLExecutionStart start, String name) {
        scala.Option found = start.modifiedConfigs().get(name);
        String value = found.isEmpty() ? context.conf().get(name, null) : String.valueOf(found.get());
        return "*********(redacted)".equals(value) ? null : value;
    }

    private static boolean isOfStream(SparkListenerSQLExecutionStart start) {
        return start.jobGroupId().isDefined() && start.description().contains("runId = " + start.jobGroupId().get());
    }

    /**
     * Who watches what has these tags: those of its thread, or of a thread that nobody watches those of its session. If these are not
     * within each other it may be of any of them, and each records that it is unknown.
     */
    private ArrayList of(Set tags) {
        ArrayList found = new ArrayList();
        for (Object one : opened.values()) if (tags.contains(((Opened) one).job)) found.add(one);
        if (!found.isEmpty()) return found;
        boolean isShared = false;
        for (Object each : opened.values()) {
            Opened one = (Opened) each;
            if (!tags.contains(one.session)) continue;
            if (!found.isEmpty() && !one.around.contains(((Opened) found.get(found.size() - 1)).job)) isShared = true;
            found.add(one);
        }
        if (!isShared) return found;
        for (Object one : found) ((Opened) one).note("a statement in a thread of its own, while several watch the session");
        return new ArrayList();
    }

    private void ended(SparkListenerSQLExecutionEnd end) {
        Long id = Long.valueOf(end.executionId());
        ArrayList found;
        Batch batch;
        Batch within;
        String begun;
        synchronized (this) {
            found = (ArrayList) running.remove(id);
            batch = (Batch) batches.remove(id);
            within = (Batch) inBatch.remove(id);
            begun = (String) this.begun.remove(id);
        }
        if (found == null && within == null) return;
        boolean hasFailed = end.errorMessage().isDefined() && !String.valueOf(end.errorMessage().get()).isEmpty();
        String name = end.executionName().isEmpty() ? "null" : PlanDump.text(String.valueOf(end.executionName().get()));
        String head = "\"id\":" + id + ",\"name\":" + name + ",\"failed\":" + hasFailed + "," + begun;
        StringBuilder dump;
        Object plan = null;
        try {
            plan = end.qe().analyzed();
            boolean isLeftOut = within != null ? within.isEngines(id, plan) : batch != null && !isOfBatch(plan);
            if (isLeftOut) return;
            dump = PlanDump.of(plan, head, false);
        } catch (Throwable error) {
            dump = PlanDump.failed(head, "there is no plan: " + error.getClass().getName());
        }
        synchronized (this) {
            if (within != null) {
                within.dumps.add(dump);
                return;
            }
            Object inner = found.get(found.size() - 1); // each is within those before it
            for (Object one : found) {
                ((Opened) one).add(dump, one != inner);
                if (batch != null && isOfFunction(plan)) for (Object each : batch.dumps) ((Opened) one).add((StringBuilder) each, one != inner);
            }
        }
    }

    /** What else a stream executes itself finds out what its next batch has. */
    private static boolean isOfBatch(Object plan) {
        return plan.getClass().getSimpleName().startsWith("WriteTo");
    }

    private static boolean isOfFunction(Object plan) {
        Object sink = PlanDump.called(plan, "sink");
        return sink != null && sink.getClass().getSimpleName().startsWith("ForeachBatch");
    }

    /** A batch of a stream, and what is executed in it: by a function that takes it, or by the engine for the batch or for the former. */
    private static final class Batch {
        final ArrayList dumps = new ArrayList();
        private final Set open = new HashSet();
        private final Set inner = new HashSet(); // begun while another was open

        void started(Long id) {
            if (!open.isEmpty()) inner.add(id);
            open.add(id);
        }

        boolean isEngines(Long id, Object plan) {
            open.remove(id);
            return inner.remove(id) && !(plan instanceof Command);
        }
    }

    /** A watcher; those that it is within are known by their jobs' tags. */
    private static final class Opened {
        final String job;
        final String session;
        final Set around = new HashSet();
        final ArrayList dumps = new ArrayList();
        final Set notes = new HashSet();
        final long lost;
        int characters;
        int left;

        Opened(String job, String session, scala.collection.Set around, long lost) {
            this.job = job;
            this.session = session;
            this.lost = lost;
            scala.collection.Iterator all = around.iterator();
            while (all.hasNext()) this.around.add(all.next());
        }

        /** Keeps a dump; `isWithin` says that one within this is recorded for it too. */
        void add(StringBuilder dump, boolean isWithin) {
            if (characters + dump.length() > CHARACTERS) {
                left++;
                return;
            }
            characters += dump.length();
            dumps.add(isWithin ? "{\"within\":true," + dump.substring(1) : dump.toString());
        }

        /** Keeps what is not known, whatever else there is to keep. */
        void note(String why) {
            if (notes.add(why)) dumps.add(PlanDump.failed("\"name\":null,", why).toString());
        }
    }
}
