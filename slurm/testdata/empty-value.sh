#!/bin/sh
#SBATCH --job-name=
sleep 1
