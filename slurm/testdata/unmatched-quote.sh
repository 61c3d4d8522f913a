#!/bin/sh
#SBATCH -J "abc
sleep 1
