"""Arrays in, figures out: ranking, mAP, CMC, mINP, ROC, intervals, re-ranking."""
