#!/bin/sh
#SBATCH --begin=soon
sleep 1
