#!/bin/sh
#SBATCH --begin="tomorrow noon"
sleep 1
