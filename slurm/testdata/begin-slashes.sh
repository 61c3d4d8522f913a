#!/bin/sh
#SBATCH --begin=02/03/31
sleep 1
