#!/bin/sh
#SBATCH -p debug -t 20
sleep 1
