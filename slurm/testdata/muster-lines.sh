#!/bin/sh
#MUSTER --tier=best-effort
#SBATCH -t 4
sleep 1
