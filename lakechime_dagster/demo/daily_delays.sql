-- Delays of each airport's day, and the weather that it had.
SELECT f.flight_date,
       f.origin,
       count(*) AS flights,
       count(*) - count(f.dep_delay) AS cancelled,
       avg(f.dep_delay) AS avg_dep_delay,
       avg(f.arr_delay) AS avg_arr_delay,
       count_if(f.dep_delay > 15) AS late,
       max(w.wind_speed) AS max_wind_speed,
       max(w.temp) AS max_temp,
       min(w.visib) AS min_visibility
FROM bronze.flights f
LEFT JOIN bronze.weather w
  ON f.flight_date = w.flight_date AND f.origin = w.origin AND f.time_hour = w.time_hour
WHERE f.carrier IS NOT NULL
GROUP BY f.flight_date, f.origin
