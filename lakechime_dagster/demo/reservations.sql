CREATE DATABASE IF NOT EXISTS reservations;
CREATE TABLE IF NOT EXISTS reservations.airlines (carrier VARCHAR(2) PRIMARY KEY, name VARCHAR(100) NOT NULL, changed_at DATETIME NOT NULL);
CREATE TABLE IF NOT EXISTS reservations.planes (tailnum VARCHAR(6) PRIMARY KEY, built INT, manufacturer VARCHAR(100), model VARCHAR(100), seats INT, changed_at DATETIME NOT NULL);
CREATE TABLE IF NOT EXISTS reservations.bookings (booking BIGINT PRIMARY KEY, flight_date DATE NOT NULL, carrier VARCHAR(2) NOT NULL, flight INT NOT NULL, origin VARCHAR(3) NOT NULL, sched_dep_time INT NOT NULL, passengers INT NOT NULL, fare DECIMAL(8, 2) NOT NULL, status VARCHAR(9) NOT NULL, changed_at DATETIME NOT NULL);
CREATE TABLE IF NOT EXISTS reservations.replayed (ticks INT NOT NULL);
INSERT INTO reservations.replayed SELECT 0 FROM DUAL WHERE NOT EXISTS (SELECT * FROM reservations.replayed);
