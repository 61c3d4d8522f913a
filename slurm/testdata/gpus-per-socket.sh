#!/bin/sh
#SBATCH --gpus-per-socket=1 --sockets-per-node=2
sleep 1
