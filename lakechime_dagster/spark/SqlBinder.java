package lakechime.sql;

import java.util.ArrayList;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.analysis.CTESubstitution$;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.CompoundBody;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;

/** Binds the tables of a query to plans, in the plan that Spark itself parses of the query's text. */
public final class SqlBinder {
    /** What Spark parses of a text, with common table expressions in their places: relations that are left are tables. */
    public LogicalPlan parsed(final SparkSession session, final String sql) throws ParseException {
        final ParseException[] failed = new ParseException[1]; // which a function of Scala may not declare
        Object plan = session.withActive(new scala.runtime.AbstractFunction0() {
            public Object apply() {
                try {
                    return CTESubstitution$.MODULE$.apply(session.sessionState().sqlParser().parsePlan(sql));
                } catch (ParseException error) {
                    failed[0] = error;
                    return null;
                }
            }
        });
        if (failed[0] != null) throw failed[0];
        return (LogicalPlan) plan;
    }

    /** What a parsed plan is or has that is not to be run over given plans; null for a query over tables. */
    public String refused(LogicalPlan plan) {
        final ArrayList found = new ArrayList();
        everyNode(plan, new Visitor() {
            public void visit(LogicalPlan node) {
                String name = node.getClass().getSimpleName();
                if (node instanceof Command || node instanceof ParsedStatement || node instanceof CompoundBody) found.add("is " + name);
                if (node instanceof PlanWithUnresolvedIdentifier) found.add("names a table by IDENTIFIER()");
                if (node instanceof RelationTimeTravel) found.add("reads a table AS OF");
                if (!(node instanceof UnresolvedRelation)) return;
                UnresolvedRelation table = (UnresolvedRelation) node;
                if (table.isStreaming()) found.add("reads the stream " + nameOf(table));
                if (!table.options().isEmpty()) found.add("reads " + nameOf(table) + " with options");
            }
        });
        return found.isEmpty() ? null : (String) found.get(0);
    }

    /** The names of the tables of a parsed plan, those in subqueries too. */
    public ArrayList tables(LogicalPlan plan) {
        final ArrayList found = new ArrayList();
        everyNode(plan, new Visitor() {
            public void visit(LogicalPlan node) {
                if (!(node instanceof UnresolvedRelation)) return;
                String name = nameOf((UnresolvedRelation) node);
                if (!found.contains(name)) found.add(name);
            }
        });
        return found;
    }

    /** The parsed query over plans by the names of its tables, each under the name by which the query calls it. */
    public Dataset bound(SparkSession session, LogicalPlan plan, final Map plans) {
        Object bound = plan.transformUpWithSubqueries(new scala.runtime.AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) {
                return node instanceof UnresolvedRelation;
            }

            public Object applyOrElse(Object node, scala.Function1 otherwise) {
                if (!isDefinedAt(node)) return otherwise.apply(node);
                scala.collection.immutable.Seq parts = ((UnresolvedRelation) node).multipartIdentifier();
                AliasIdentifier name = new AliasIdentifier((String) parts.last(), (scala.collection.immutable.Seq) parts.init());
                return new SubqueryAlias(name, (LogicalPlan) plans.get(nameOf((UnresolvedRelation) node)));
            }
        });
        return Dataset.ofRows(session, (LogicalPlan) bound);
    }

    /** What gives a column of a parsed query that groups, with other columns for those that it mentions, which are in lower case. */
    public Column grouped_by(LogicalPlan plan, String name, final Map columns) {
        LogicalPlan node = plan;
        while (!(node instanceof Aggregate)) node = (LogicalPlan) node.children().last(); // HAVING, ORDER BY, hints, and WITH
        scala.collection.Iterator selected = ((Aggregate) node).aggregateExpressions().iterator();
        while (selected.hasNext()) {
            Object one = selected.next();
            if (one instanceof Alias && ((Alias) one).name().equalsIgnoreCase(name)) return over(((Alias) one).child(), columns);
            if (one instanceof UnresolvedAttribute && name.equalsIgnoreCase((String) ((UnresolvedAttribute) one).nameParts().last())) {
                return over((Expression) one, columns);
            }
        }
        throw new IllegalArgumentException("Spark finds no column " + name + " in the SELECT of the query");
    }

    private static Column over(Expression term, final Map columns) {
        return ExpressionUtils.column((Expression) term.transformUp(new scala.runtime.AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) {
                return node instanceof UnresolvedAttribute;
            }

            public Object applyOrElse(Object node, scala.Function1 otherwise) {
                if (!isDefinedAt(node)) return otherwise.apply(node);
                String name = ((UnresolvedAttribute) node).nameParts().mkString(".");
                Object own = columns.get(name.toLowerCase(Locale.ROOT));
                if (own == null) throw new IllegalArgumentException("Spark finds the column " + name + " in a key, which is not understood");
                return UnresolvedAttribute.quoted((String) own);
            }
        }));
    }

    private interface Visitor {
        void visit(LogicalPlan node);
    }

    private static void everyNode(LogicalPlan plan, final Visitor visitor) {
        plan.transformUpWithSubqueries(new scala.runtime.AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) {
                return true;
            }

            public Object applyOrElse(Object node, scala.Function1 otherwise) {
                visitor.visit((LogicalPlan) node);
                return node;
            }
        });
    }

    private static String nameOf(UnresolvedRelation table) {
        return table.multipartIdentifier().mkString(".");
    }
}
