-- Passengers of each airline who boarded, how many of them left more than 15 minutes late, and what they paid.
SELECT b.carrier,
       a.name AS airline,
       sum(b.passengers) AS passengers,
       coalesce(sum(CASE WHEN f.dep_delay > 15 THEN b.passengers END), 0) AS late_passengers,
       sum(b.fare * b.passengers) AS paid,
       max(p.seats) AS seats_of_the_largest_plane
FROM cdc.bookings b
JOIN silver.flights f
  ON b.flight_date = f.flight_date AND b.carrier = f.carrier AND b.flight = f.flight AND b.origin = f.origin
 AND b.sched_dep_time = f.sched_dep_time
JOIN cdc.airlines a ON b.carrier = a.carrier
LEFT JOIN cdc.planes p ON f.tailnum = p.tailnum
WHERE b.status = 'boarded'
GROUP BY b.carrier, a.name
