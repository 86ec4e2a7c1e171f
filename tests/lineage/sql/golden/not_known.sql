-- spark
SELECT nothing FROM shop.orders
--> read: nothing = !column 'nothing' is in none of the tables

-- spark
SELECT o.nothing FROM shop.orders o
--> read: nothing = !column 'nothing' is not in o

-- spark
SELECT x.a FROM elsewhere.pages x
--> read: a = identity spark/elsewhere.pages.a + !table spark/elsewhere.pages is not known

-- spark
SELECT * FROM elsewhere.pages
--> read: * = identity spark/elsewhere.pages + !table spark/elsewhere.pages is not known

-- spark
SELECT id FROM shop.orders, shop.customers
--> read: id = identity shop.customers.id + identity shop.orders.id + !column 'id' may be of several tables

-- spark
SELECT s.a FROM (SELECT * FROM elsewhere.pages) s
--> read: a = identity spark/elsewhere.pages + !table spark/elsewhere.pages is not known

-- spark
SELECT (SELECT amount FROM elsewhere.pages) AS x FROM shop.orders
--> read: x = identity spark/elsewhere.pages.amount + !table spark/elsewhere.pages is not known

-- spark
SELECT guess() AS g FROM shop.orders
--> read: g = !function guess() is not known

-- spark
SELECT id FROM RANGE(10)
--> read: id = !table function range() is not followed !table function range() is not followed

-- spark
SELECT 1 AS one UNION ALL SELECT 1, 2
--> read: one = !a union of 1 and 2 columns

-- spark
SELECT id FROM shop.customers WHERE nothing = 1
--> read: id = identity shop.customers.id !column 'nothing' is in none of the tables

-- trino
SELECT d FROM shop.customers MATCH_RECOGNIZE (ORDER BY id MEASURES x.name AS d PATTERN (x) DEFINE x AS id > 1)
--> read: d = identity shop.customers + !its columns could not be resolved !its columns could not be resolved

-- trino
SELECT * FROM TABLE(guess(1))
--> read: * = !table function table() is not followed !table function table() is not followed

-- duckdb
SELECT COLUMNS(c -> c LIKE '%m%') FROM shop.customers
--> read: * = identity shop.customers.id + identity shop.customers.name + !which columns it chooses is not followed

-- mysql
UPDATE shop.orders v JOIN elsewhere.pages c ON v.customer = c.id SET name = 1
--> mysql/elsewhere.pages: name = constant | join shop.orders.customer !table mysql/elsewhere.pages is not known

-- tsql
INSERT INTO gold.days SELECT id, amount FROM #work
--> gold.days: day = !temporary table #work is not made here, total = !temporary table #work is not made here

-- tsql
INSERT INTO #work (id) SELECT id FROM shop.orders; INSERT INTO gold.days SELECT id, amount FROM #work
--> gold.days: day = identity shop.orders.id + !temporary table #work is not made here, total = !temporary table #work is not made here

-- duckdb
SELECT * LIKE '%m_u%' FROM shop.customers
--> read: * = identity shop.customers.id + identity shop.customers.name + !which columns it chooses is not followed

-- tsql
WITH c AS (SELECT id, amount AS a FROM shop.orders WHERE id > 1) UPDATE c SET a = id + 1
--> read: a = transformation shop.orders.id | filter shop.orders.id !the target is not a table
