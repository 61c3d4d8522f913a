#!/bin/sh
#SBATCH --time=UNLIMITED
sleep 1
