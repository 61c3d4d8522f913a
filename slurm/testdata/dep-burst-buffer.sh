#!/bin/sh
#SBATCH --dependency=afterburstbuffer:3
sleep 1
