-- spark
SELECT id, amount + 1 AS more, 1 AS one FROM shop.orders
--> read: id = identity shop.orders.id, more = transformation shop.orders.amount, one = constant

-- spark
SELECT * FROM shop.customers
--> read: id = identity shop.customers.id, name = identity shop.customers.name

-- spark
SELECT * EXCEPT (name), id + 1 AS next FROM shop.customers
--> read: id = identity shop.customers.id, next = transformation shop.customers.id

-- bigquery
SELECT * REPLACE (id + 1 AS id) FROM shop.customers
--> read: id = transformation shop.customers.id, name = identity shop.customers.name

-- spark
SELECT c.NAME FROM shop.CUSTOMERS c
--> read: NAME = identity shop.customers.name

-- spark
SELECT shop.customers.name FROM shop.customers
--> read: name = identity shop.customers.name

-- spark
SELECT items.sku, o.items.price FROM shop.orders o
--> read: sku = transformation shop.orders.items, price = transformation shop.orders.items

-- spark
SELECT c.name, SUM(o.amount) AS total FROM shop.orders o JOIN shop.customers c ON o.customer = c.id WHERE o.id > 5 GROUP BY c.name
--> read: name = identity shop.customers.name, total = aggregation shop.orders.amount | join shop.customers.id, group_by shop.customers.name, join shop.orders.customer, filter shop.orders.id

-- spark
SELECT name, amount FROM shop.orders JOIN shop.customers USING (id) ORDER BY 2
--> read: name = identity shop.customers.name, amount = identity shop.orders.amount | join shop.customers.id, sort shop.orders.amount, join shop.orders.id

-- spark
SELECT id FROM shop.orders RIGHT JOIN shop.customers USING (id)
--> read: id = conditional shop.customers.id + identity shop.customers.id + conditional shop.orders.id + identity shop.orders.id | join shop.customers.id, join shop.orders.id

-- spark
SELECT id FROM shop.orders FULL JOIN shop.customers USING (id)
--> read: id = conditional shop.customers.id + identity shop.customers.id + conditional shop.orders.id + identity shop.orders.id | join shop.customers.id, join shop.orders.id

-- spark
SELECT id FROM shop.orders NATURAL JOIN shop.customers
--> read: id = conditional shop.customers.id + identity shop.customers.id + conditional shop.orders.id + identity shop.orders.id | join shop.customers.id, join shop.orders.id

-- spark
SELECT CASE WHEN amount > 1 THEN id ELSE 0 END AS x, COUNT(customer) AS n FROM shop.orders GROUP BY ALL
--> read: x = conditional shop.orders.amount + identity shop.orders.id, n = aggregation shop.orders.customer masked | group_by shop.orders.amount, group_by shop.orders.id

-- spark
SELECT CASE customer WHEN 1 THEN id END AS x, IF(amount > 0, id, items) AS y, NULLIF(id, amount) AS z FROM shop.orders
--> read: x = conditional shop.orders.customer + identity shop.orders.id, y = conditional shop.orders.amount + identity shop.orders.id + identity shop.orders.items, z = conditional shop.orders.amount + conditional shop.orders.id + identity shop.orders.id

-- spark
SELECT SUM(amount) OVER (PARTITION BY customer ORDER BY id) AS running, ROW_NUMBER() OVER w AS n FROM shop.orders WINDOW w AS (PARTITION BY customer)
--> read: running = aggregation shop.orders.amount + window shop.orders.customer + window shop.orders.id, n = window shop.orders.customer

-- spark
SELECT SUM(amount) FILTER (WHERE customer = 1) AS ones FROM shop.orders
--> read: ones = aggregation shop.orders.amount + filter shop.orders.customer

-- spark
SELECT COALESCE(items, id + 1) AS x, NVL(amount, 0) AS y FROM shop.orders
--> read: x = conditional shop.orders.id + transformation shop.orders.id + conditional shop.orders.items + identity shop.orders.items, y = conditional shop.orders.amount + identity shop.orders.amount

-- spark
SELECT customer, GROUPING(customer) AS g, SUM(amount) AS total FROM shop.orders GROUP BY ROLLUP (customer)
--> read: customer = identity shop.orders.customer, g = group_by shop.orders.customer, total = aggregation shop.orders.amount | group_by shop.orders.customer

-- spark
WITH o AS (SELECT id AS k FROM shop.orders UNION ALL SELECT customer FROM shop.orders) SELECT o.k FROM o
--> read: k = identity shop.orders.customer + identity shop.orders.id

-- spark
WITH o (k) AS (SELECT id FROM shop.orders), shop AS (SELECT k + 1 AS n FROM o) SELECT n FROM shop
--> read: n = transformation shop.orders.id

-- spark
WITH unread AS (SELECT id FROM elsewhere.pages) SELECT id FROM shop.customers
--> read: id = identity shop.customers.id

-- spark
WITH RECURSIVE r AS (SELECT id, customer FROM shop.orders UNION ALL SELECT c.id + 1, r.id FROM shop.customers c JOIN r ON c.id = r.id) SELECT customer FROM r
--> read: customer = transformation shop.customers.id + identity shop.orders.customer + transformation shop.orders.customer + identity shop.orders.id + transformation shop.orders.id + !a recursive query is not followed | join shop.customers.id, join shop.orders.id

-- spark
SELECT (SELECT MAX(name) FROM shop.customers c WHERE c.id = o.customer) AS best FROM shop.orders o
--> read: best = filter shop.customers.id + aggregation shop.customers.name + filter shop.orders.customer

-- spark
SELECT c.name, CASE WHEN c.id IN (SELECT customer FROM shop.orders WHERE amount > 1) THEN 1 END AS f, EXISTS (SELECT 1 FROM shop.orders o WHERE o.id = c.id) AS e FROM shop.customers c
--> read: name = identity shop.customers.name, f = conditional shop.customers.id + filter shop.orders.amount + conditional shop.orders.customer, e = filter shop.customers.id + filter shop.orders.id

-- spark
WITH big AS (SELECT id, customer FROM shop.orders WHERE amount > 1) SELECT name, (SELECT MAX(id) FROM big) AS top FROM shop.customers
--> read: name = identity shop.customers.name, top = filter shop.orders.amount + aggregation shop.orders.id

-- postgres
SELECT o.id, c.name FROM ((shop.orders AS o JOIN shop.customers AS c ON o.customer = c.id))
--> read: id = identity shop.orders.id, name = identity shop.customers.name | join shop.customers.id, join shop.orders.customer

-- postgres
SELECT x.k, x.name FROM ((SELECT id AS k FROM shop.orders) AS o JOIN shop.customers AS c ON o.k = c.id) AS x
--> read: k = identity shop.orders.id, name = identity shop.customers.name | join shop.customers.id, join shop.orders.id

-- spark
SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.customers c WHERE c.id = o.customer) AND amount IN (SELECT id FROM shop.customers)
--> read: id = identity shop.orders.id | filter shop.customers.id, filter shop.orders.amount, filter shop.orders.customer

-- spark
SELECT id, item FROM shop.orders LATERAL VIEW EXPLODE(items) i AS item
--> read: id = identity shop.orders.id, item = transformation shop.orders.items

-- spark
SELECT o.id FROM shop.orders o LEFT ANTI JOIN shop.customers c ON c.id = o.customer
--> read: id = identity shop.orders.id | join shop.customers.id, join shop.orders.customer

-- spark
SELECT * FROM shop.orders PIVOT (SUM(amount) FOR customer IN (1 AS one))
--> read: id = aggregation shop.orders.amount + aggregation shop.orders.customer + aggregation shop.orders.id + aggregation shop.orders.items + !PIVOT is not followed, items = aggregation shop.orders.amount + aggregation shop.orders.customer + aggregation shop.orders.id + aggregation shop.orders.items + !PIVOT is not followed, one = aggregation shop.orders.amount + aggregation shop.orders.customer + aggregation shop.orders.id + aggregation shop.orders.items + !PIVOT is not followed !PIVOT is not followed

-- spark
SELECT * FROM shop.customers UNPIVOT (value FOR field IN (id, name))
--> read: field = aggregation shop.customers.id + aggregation shop.customers.name + !PIVOT is not followed, value = aggregation shop.customers.id + aggregation shop.customers.name + !PIVOT is not followed !PIVOT is not followed

-- spark
SELECT amount AS a, a * 2 AS twice FROM shop.orders
--> read: a = identity shop.orders.amount, twice = transformation shop.orders.amount

-- spark
SELECT MD5(name) AS h, XXHASH64(id) AS x FROM shop.customers
--> read: h = transformation shop.customers.name masked, x = transformation shop.customers.id masked

-- spark
SELECT TRANSFORM(items, x -> x + id) AS y FROM shop.orders
--> read: y = transformation shop.orders.id + transformation shop.orders.items

-- spark
SELECT customer FROM shop.orders EXCEPT SELECT id FROM shop.customers
--> read: customer = identity shop.orders.customer | join shop.customers.id, join shop.orders.customer

-- spark
(SELECT id FROM shop.orders) UNION SELECT id FROM shop.customers ORDER BY 1
--> read: id = identity shop.customers.id + identity shop.orders.id | group_by shop.customers.id, sort shop.customers.id, group_by shop.orders.id, sort shop.orders.id

-- spark
SELECT DISTINCT name FROM shop.customers
--> read: name = identity shop.customers.name | group_by shop.customers.name

-- spark
SELECT v.a FROM (VALUES (1, 2)) AS v(a, b)
--> read: a = constant

-- spark
SELECT l.z FROM shop.orders o, LATERAL (SELECT o.amount + 1 AS z) l
--> read: z = transformation shop.orders.amount

-- spark
SELECT COUNT(*) AS n FROM shop.orders HAVING MAX(customer) > 1
--> read: n = constant | filter shop.orders.customer

-- trino
SELECT o.id, i.sku FROM shop.orders o CROSS JOIN UNNEST(o.items) AS i(sku)
--> read: id = identity shop.orders.id, sku = transformation shop.orders.items

-- bigquery
SELECT x FROM shop.orders o, UNNEST(o.items) AS x
--> read: x = transformation shop.orders.items

-- snowflake
SELECT f.value:name::string AS n FROM shop.orders o, LATERAL FLATTEN(input => o.items) f
--> read: n = transformation shop.orders.items

-- snowflake
SELECT name FROM shop.customers QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY name) = 1
--> read: name = identity shop.customers.name | filter shop.customers.id, filter shop.customers.name

-- trino
SELECT LISTAGG(name, ',') WITHIN GROUP (ORDER BY id) AS names FROM shop.customers
--> read: names = sort shop.customers.id + aggregation shop.customers.name

-- tsql
SELECT TOP 5 name FROM shop.customers ORDER BY id
--> read: name = identity shop.customers.name | sort shop.customers.id

-- duckdb
SELECT [[1, 2], [3]] AS l FROM shop.customers
--> read: l = constant

-- duckdb
FROM shop.customers SELECT name
--> read: name = identity shop.customers.name
