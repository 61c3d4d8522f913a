#!/bin/sh
#SBATCH -t 10 --deadline=now+5minutes
sleep 1
