#!/bin/sh
#SBATCH --gres=shard:1
sleep 1
