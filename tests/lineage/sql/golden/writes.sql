-- spark
INSERT INTO gold.days SELECT id, amount FROM shop.orders
--> gold.days: day = identity shop.orders.id, total = identity shop.orders.amount

-- spark
INSERT INTO gold.days (total, day) SELECT id, amount FROM shop.orders
--> gold.days: total = identity shop.orders.id, day = identity shop.orders.amount

-- spark
INSERT INTO gold.days BY NAME SELECT id AS total, 1 AS day FROM shop.orders
--> gold.days: total = identity shop.orders.id, day = constant

-- spark
INSERT INTO gold.days PARTITION (day = '2013-01-01') SELECT amount FROM shop.orders
--> gold.days: total = identity shop.orders.amount, day = constant

-- spark
INSERT INTO gold.days PARTITION (day) SELECT amount, id FROM shop.orders
--> gold.days: total = identity shop.orders.amount, day = identity shop.orders.id

-- spark
WITH o AS (SELECT id AS k FROM shop.orders) INSERT INTO gold.days SELECT k, k + 1 FROM o
--> gold.days: day = identity shop.orders.id, total = transformation shop.orders.id

-- spark
INSERT INTO gold.days SELECT * FROM elsewhere.pages
--> gold.days: day = identity spark/elsewhere.pages + !table spark/elsewhere.pages is not known, total = identity spark/elsewhere.pages + !table spark/elsewhere.pages is not known

-- spark
INSERT INTO gold.new SELECT id FROM shop.orders
--> spark/gold.new: id = identity shop.orders.id !the columns of spark/gold.new are not known; those of the query are taken for them

-- spark
CREATE OR REPLACE TABLE gold.new AS SELECT id AS k, amount FROM shop.orders
--> spark/gold.new: k = identity shop.orders.id, amount = identity shop.orders.amount

-- spark
CREATE VIEW gold.new (a) AS SELECT id FROM shop.orders
--> spark/gold.new: a = identity shop.orders.id

-- spark
MERGE INTO gold.days t USING (SELECT * FROM shop.orders WHERE customer > 0) s ON t.day = s.id WHEN MATCHED AND s.items IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET t.total = s.amount + t.total, day = t.day WHEN NOT MATCHED THEN INSERT (day, total) VALUES (s.id, s.amount) WHEN NOT MATCHED BY SOURCE THEN UPDATE SET total = 0
--> gold.days: total = transformation gold.days.total + identity shop.orders.amount + transformation shop.orders.amount, day = identity shop.orders.id | filter shop.orders.customer, join shop.orders.id, filter shop.orders.items

-- spark
MERGE INTO gold.days t USING (SELECT id AS DAY, amount AS total FROM shop.orders) s ON t.day = s.day WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
--> gold.days: day = identity shop.orders.id, total = identity shop.orders.amount | join shop.orders.id

-- spark
MERGE INTO gold.days t USING elsewhere.pages s ON t.day = s.day WHEN MATCHED THEN UPDATE SET *
--> gold.days: day = identity spark/elsewhere.pages.day + !table spark/elsewhere.pages is not known, total = identity spark/elsewhere.pages.total + !table spark/elsewhere.pages is not known | join spark/elsewhere.pages.day !table spark/elsewhere.pages is not known

-- spark
DELETE FROM gold.days WHERE day IN (SELECT id FROM shop.orders)
--> gold.days:  | filter shop.orders.id

-- postgres
UPDATE gold.days SET total = o.amount FROM shop.orders o WHERE days.day = o.id
--> gold.days: total = identity shop.orders.amount | filter shop.orders.id

-- postgres
INSERT INTO gold.days (day, total) SELECT id, amount FROM shop.orders ON CONFLICT (day) DO UPDATE SET total = excluded.total + days.total
--> gold.days: day = identity shop.orders.id, total = transformation gold.days.total + identity shop.orders.amount + transformation shop.orders.amount | join shop.orders.id

-- postgres
SELECT id INTO gold.new FROM shop.orders
--> postgres/gold.new: id = identity shop.orders.id

-- spark
FROM shop.orders INSERT INTO gold.days SELECT id, amount INSERT INTO shop.customers (id) SELECT customer
--> gold.days: day = identity shop.orders.id, total = identity shop.orders.amount
--> shop.customers: id = identity shop.orders.customer

-- snowflake
INSERT ALL INTO gold.days VALUES (id, amount) INTO shop.customers (id) VALUES (customer) SELECT * FROM shop.orders WHERE items IS NULL
--> gold.days: day = identity shop.orders.id, total = identity shop.orders.amount | filter shop.orders.items
--> shop.customers: id = identity shop.orders.customer | filter shop.orders.items

-- spark
CREATE TABLE gold.new AS SELECT id AS day, amount FROM shop.orders; INSERT INTO gold.days SELECT * FROM gold.new
--> spark/gold.new: day = identity shop.orders.id, amount = identity shop.orders.amount
--> gold.days: day = identity spark/gold.new.day, total = identity spark/gold.new.amount

-- spark
CREATE TEMP VIEW v AS SELECT id AS k, amount FROM shop.orders WHERE customer = 1; CACHE TABLE w AS SELECT * FROM v; INSERT INTO gold.days SELECT k, amount FROM w
--> gold.days: day = identity shop.orders.id, total = identity shop.orders.amount | filter shop.orders.customer

-- snowflake
COPY INTO gold.days FROM @stage
--> gold.days:  !COPY reads files

-- spark
SET x = 1; DROP TABLE gold.days; CREATE TABLE a (b INT); USE shop; EXPLAIN SELECT 1
