-- Run once, when the volume is new; the database mlflow is there by POSTGRES_DB.
CREATE DATABASE prefect;
