#!/bin/sh
#SBATCH --signal=B:USR1@60
sleep 1
