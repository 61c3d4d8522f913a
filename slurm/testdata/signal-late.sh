#!/bin/sh
#SBATCH --signal=USR1@70000
sleep 1
