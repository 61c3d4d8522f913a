#!/bin/sh
#SBATCH -a 1-2 -o %A-%a.log
sleep 1
