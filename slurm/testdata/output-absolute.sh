#!/bin/sh
#SBATCH -o /tmp/x-%x-%u.log
sleep 1
