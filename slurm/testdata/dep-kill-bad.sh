#!/bin/sh
#SBATCH --dependency=afterok:3 --kill-on-invalid-dep=maybe
sleep 1
