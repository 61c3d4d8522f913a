#!/bin/sh
#SBATCH --no-requeue
sleep 1
