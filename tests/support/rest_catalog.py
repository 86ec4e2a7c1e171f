"""Iceberg's REST catalog: the reference server of Apache Iceberg itself, over its catalog in SQLite,
in Jetty, both from pyspark's jars and `rest_catalog.xml`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.demo.servers import free_port, java_machine
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.spark.jvm import find_java
from tests.support.iceberg import IcebergWorld
from tests.support.metastore import Metastore
from tests.support.missing import missing
from tests.support.stack_jars import REST_CATALOG_FILE, ensure_jars

TOKEN = "a-token-of-tests"
# of the server itself, which knows no tokens, none is demanded
GUARD = """
public class Guard implements jakarta.servlet.Filter {
    private String demanded;

    public void init(jakarta.servlet.FilterConfig config) {
        demanded = "Bearer " + config.getInitParameter("token");
    }

    public void doFilter(
        jakarta.servlet.ServletRequest request,
        jakarta.servlet.ServletResponse response,
        jakarta.servlet.FilterChain chain
    ) throws java.io.IOException, jakarta.servlet.ServletException {
        String given = ((jakarta.servlet.http.HttpServletRequest) request).getHeader("Authorization");
        if (demanded.equals(given)) {
            chain.doFilter(request, response);
            return;
        }
        ((jakarta.servlet.http.HttpServletResponse) response).setStatus(401);
        response.setContentType("application/json");
        response.getWriter().write(
            "{\\"error\\": {\\"message\\": \\"no such token\\", \\"type\\": \\"NotAuthorizedException\\", \\"code\\": 401}}"
        );
    }

    public void destroy() {}
}
"""


@dataclass(frozen=True)
class RestCatalog:
    """A running server, which can be stopped and started again."""

    url: str
    server: Any

    def properties(self, token: str = TOKEN) -> dict[str, str]:
        """As the setting has them."""
        return {"type": "rest", "uri": self.url, "token": token}

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Nobody listens at its port until the block ends."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


@contextmanager
def running_rest_catalog(folder: Path, spark_jars: Path) -> Iterator[RestCatalog]:
    """A server with its tables in a folder; its database's driver is among Spark's jars."""
    jars = [ensure_jars(REST_CATALOG_FILE) / "*", *spark_jars.glob("sqlite-jdbc-*.jar")]
    with java_machine(folder / "rest-catalog.log", jars, find_java()) as machine:
        java, org = machine.packages.java, machine.packages.org
        catalog = org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(org.apache.hadoop.conf.Configuration())
        database = {"uri": f"jdbc:sqlite:{folder / 'catalog.sqlite'}", "jdbc.schema-version": "V1"}
        catalog.initialize("lake", database | {"warehouse": f"file://{folder / 'warehouse'}"})
        rest, jetty = org.apache.iceberg.rest, org.sparkproject.jetty
        context = jetty.servlet.ServletContextHandler()
        servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
        context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        compiler = org.codehaus.janino.SimpleCompiler()
        compiler.cook(GUARD)
        guard = compiler.getClassLoader().loadClass("Guard").newInstance()
        holder = jetty.servlet.FilterHolder(guard)
        holder.setInitParameter("token", TOKEN)
        kinds = java.lang.Class.forName("jakarta.servlet.DispatcherType")
        context.addFilter(holder, "/*", java.util.EnumSet.noneOf(kinds))
        port = free_port()
        server = jetty.server.Server(java.net.InetSocketAddress("127.0.0.1", port))
        server.setHandler(context)
        server.start()
        yield RestCatalog(f"http://127.0.0.1:{port}", server)


@pytest.fixture(scope="session")
def rest_catalog(
    spark_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestCatalog]:
    """A REST catalog for all tests of this process."""
    try:
        with running_rest_catalog(tmp_path_factory.mktemp("rest"), spark_jars) as running:
            yield running
    except LakeChimeError as error:
        missing(str(error), "run `make ready` with a network")


@pytest.fixture(params=["rest", "hive"])
def served_iceberg(request: pytest.FixtureRequest) -> Iterator[IcebergWorld]:
    """A catalog that a server has, of each kind; the tables that a test makes are dropped."""
    if request.param == "rest":
        rest: RestCatalog = request.getfixturevalue("rest_catalog")
        world = IcebergWorld(rest.properties())
    else:
        metastore: Metastore = request.getfixturevalue("metastore")
        # its version has no time with a zone
        hive = {"type": "hive", "uri": metastore.url, "hive.hive2-compatible": "true"}
        world = IcebergWorld(hive)
    catalog = world.catalog
    before = catalog.list_namespaces()
    yield world
    for namespace in set(catalog.list_namespaces()) - set(before):
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
        catalog.drop_namespace(namespace)
