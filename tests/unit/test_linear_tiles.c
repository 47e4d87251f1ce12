/* Which kernels products get on an H200, against what all of them reached there. */
#include "test.h"

#include "ops/linear_tiles.h"

enum { N_SMS = 132, CHOICES = 8, OWN = MT_TILE_OWN };

/* What cuBLASLt 13.0 offers for the products of Qwen2.5's 0.5B, 3B, 7B, 14B, 32B and 72B, Llama-3's 8B and Mistral-Large, in its
 * order, and the TFLOP/s of each on a hot card: of 0.5B in bursts of 6 to 12 ms, of the others at the power limit that the card
 * settles at (of those, the tiles that come first in a shorter run), of Mistral-Large within steps of 12 layers, the tiles in turn.
 * OWN came later, on another card: scaled by what the library's choice reached there in bursts, or in the steps of 32B that had OWN. */
/* clang-format off */
static const struct {
    const char *name;
    int64_t m, n, k;
    bool bias;
    int times; /* in a step, relative to the model's other products */
    struct {
        int tile, split;
        double tflops;
    } choices[CHOICES];
} measured[] = {
    { "0.5b gate_up fwd", 9728, 32768, 896, false, 48, { { 209, 1, 621 }, { 24, 1, 630 }, { 23, 1, 629 }, { 248, 1, 589 }, { 32, 1, 609 }, { 31, 1, 616 }, { 197, 1, 734 }, { 201, 1, 746 } } },
    { "0.5b gate_up dx", 896, 32768, 9728, false, 48, { { 23, 1, 789 }, { 29, 1, 831 }, { 248, 1, 720 }, { 209, 1, 737 }, { 20, 1, 810 }, { 31, 1, 753 }, { 32, 1, 752 }, { 24, 1, 742 } } },
    { "0.5b gate_up dw", 896, 9728, 32768, false, 48, { { 209, 1, 784 }, { 32, 1, 747 }, { 31, 1, 752 }, { 248, 1, 717 }, { 118, 1, 661 }, { 29, 1, 597 }, { 28, 1, 606 }, { 20, 1, 705 } } },
    { "0.5b down fwd", 896, 32768, 4864, false, 48, { { 23, 1, 757 }, { 29, 1, 810 }, { 248, 1, 750 }, { 20, 1, 756 }, { 209, 1, 639 }, { 31, 1, 722 }, { 32, 1, 717 }, { 165, 1, 764 } } },
    { "0.5b down dx", 4864, 32768, 896, false, 48, { { 24, 1, 702 }, { 23, 1, 691 }, { 209, 1, 648 }, { 32, 1, 661 }, { 29, 1, 772 }, { 495, 1, 672 }, { 31, 1, 667 }, { 248, 1, 640 } } },
    { "0.5b down dw", 4864, 896, 32768, false, 48, { { 209, 1, 765 }, { 248, 1, 683 }, { 31, 2, 649 }, { 32, 2, 653 }, { 28, 1, 617 }, { 495, 2, 656 }, { 29, 1, 689 }, { 263, 2, 600 } } },
    { "0.5b qkv fwd", 1152, 32768, 896, true, 48, { { 209, 1, 673 }, { 23, 1, 650 }, { 31, 1, 667 }, { 32, 1, 598 }, { 184, 1, 610 }, { 197, 1, 597 }, { 29, 1, 651 }, { 20, 1, 698 } } },
    { "0.5b qkv dx", 896, 32768, 1152, false, 48, { { 23, 1, 601 }, { 29, 1, 737 }, { 248, 1, 619 }, { 20, 1, 737 }, { 209, 1, 581 }, { 31, 1, 588 }, { 32, 1, 583 }, { 272, 1, 373 } } },
    { "0.5b qkv dw", 896, 1152, 32768, false, 48, { { 32, 3, 683 }, { 20, 2, 698 }, { 118, 3, 628 }, { 209, 4, 625 }, { 17, 1, 715 }, { 18, 1, 726 }, { 116, 3, 629 }, { 248, 4, 567 } } },
    { "0.5b o fwd", 896, 32768, 896, false, 48, { { 23, 1, 494 }, { 29, 1, 613 }, { 248, 1, 468 }, { 20, 1, 611 }, { 209, 1, 462 }, { 165, 1, 596 }, { 31, 1, 492 }, { 32, 1, 487 } } },
    { "0.5b o dx", 896, 32768, 896, false, 48, { { 23, 1, 577 }, { 29, 1, 704 }, { 248, 1, 577 }, { 20, 1, 716 }, { 209, 1, 545 }, { 31, 1, 572 }, { 32, 1, 567 }, { 272, 1, 368 } } },
    { "0.5b o dw", 896, 896, 32768, false, 48, { { 29, 3, 639 }, { 248, 6, 606 }, { 247, 3, 613 }, { 209, 5, 599 }, { 20, 8, 595 }, { 17, 4, 550 }, { 32, 7, 573 }, { 31, 7, 563 } } },
    { "0.5b head fwd", 151936, 4096, 896, false, 16, { { 248, 1, 599 }, { 24, 1, 623 }, { 23, 1, 620 }, { 209, 1, 607 }, { 31, 1, 638 }, { 201, 1, 764 }, { 197, 1, 757 }, { 32, 1, 614 } } },
    { "0.5b head dx", 896, 4096, 151936, false, 16, { { 248, 4, 742 }, { 20, 4, 779 }, { 23, 2, 678 }, { 32, 4, 673 }, { 29, 2, 689 }, { 31, 4, 683 }, { 272, 1, 413 }, { 24, 1, 694 } } },
    { "0.5b head dw", 896, 151936, 4096, false, 16, { { 23, 1, 674 }, { 32, 1, 742 }, { 209, 1, 709 }, { 248, 1, 647 }, { 29, 1, 723 }, { 20, 1, 758 }, { 31, 1, 654 }, { 24, 1, 582 } } },
    { "3b gate_up fwd", 22016, 32768, 2048, false, 1, { { 209, 1, 682 }, { 24, 1, 691 }, { 23, 1, 684 }, { 201, 1, 699 }, { 197, 1, 694 }, { OWN, 1, 658 } } },
    { "3b gate_up dx", 2048, 32768, 22016, false, 1, { { 24, 1, 693 }, { 23, 1, 682 }, { 209, 1, 657 }, { 29, 1, 680 }, { OWN, 1, 618 } } },
    { "3b gate_up dw", 2048, 22016, 32768, false, 1, { { 209, 1, 655 }, { 23, 1, 665 }, { 24, 1, 679 }, { 29, 1, 651 }, { 20, 1, 682 }, { OWN, 1, 653 } } },
    { "3b down fwd", 2048, 32768, 11008, false, 1, { { 24, 1, 695 }, { 23, 1, 679 }, { 209, 1, 652 }, { 29, 1, 681 }, { OWN, 1, 639 } } },
    { "3b down dx", 11008, 32768, 2048, false, 1, { { 209, 1, 662 }, { 24, 1, 694 }, { 23, 1, 675 }, { 29, 1, 696 }, { OWN, 1, 649 } } },
    { "3b down dw", 11008, 2048, 32768, false, 1, { { 209, 1, 655 }, { 23, 1, 659 }, { 24, 1, 650 }, { 29, 1, 641 }, { 20, 1, 659 }, { OWN, 1, 676 } } },
    { "3b qkv fwd", 2560, 32768, 2048, false, 1, { { 24, 1, 685 }, { 23, 1, 669 }, { 209, 1, 628 }, { 29, 1, 676 }, { OWN, 1, 634 } } },
    { "3b qkv dx", 2048, 32768, 2560, false, 1, { { 24, 1, 686 }, { 23, 1, 657 }, { 209, 1, 625 }, { 29, 1, 687 }, { OWN, 1, 613 } } },
    { "3b qkv dw", 2048, 2560, 32768, false, 1, { { 29, 1, 662 }, { 20, 1, 617 }, { OWN, 1, 635 } } },
    { "3b o fwd", 2048, 32768, 2048, false, 1, { { 24, 1, 676 }, { 23, 1, 655 }, { 209, 1, 630 }, { 29, 1, 684 }, { OWN, 1, 606 } } },
    { "3b o dx", 2048, 32768, 2048, false, 1, { { 24, 1, 676 }, { 23, 1, 658 }, { 209, 1, 619 }, { 29, 1, 688 }, { OWN, 1, 621 } } },
    { "3b o dw", 2048, 2048, 32768, false, 1, { { 23, 1, 702 }, { 24, 1, 698 }, { 20, 1, 665 }, { 209, 1, 636 }, { OWN, 1, 556 } } },
    { "7b gate_up fwd", 37888, 26624, 3584, false, 1, { { 209, 1, 683 }, { 24, 1, 697 }, { 23, 1, 681 }, { 201, 1, 704 }, { 197, 1, 700 }, { OWN, 1, 709 } } },
    { "7b gate_up dx", 3584, 26624, 37888, false, 1, { { 209, 1, 663 }, { 24, 1, 679 }, { 23, 1, 673 }, { 29, 1, 674 }, { OWN, 1, 680 } } },
    { "7b gate_up dw", 3584, 37888, 26624, false, 1, { { 209, 1, 670 }, { 23, 1, 683 }, { 24, 1, 676 }, { 29, 1, 659 }, { OWN, 1, 657 } } },
    { "7b down fwd", 3584, 26624, 18944, false, 1, { { 209, 1, 668 }, { 24, 1, 684 }, { 23, 1, 673 }, { 29, 1, 673 }, { OWN, 1, 690 } } },
    { "7b down dx", 18944, 26624, 3584, false, 1, { { 209, 1, 676 }, { 24, 1, 694 }, { 23, 1, 689 }, { 29, 1, 688 }, { OWN, 1, 679 } } },
    { "7b down dw", 18944, 3584, 26624, false, 1, { { 23, 1, 680 }, { 24, 1, 681 }, { 209, 1, 652 }, { 29, 1, 651 }, { OWN, 1, 702 } } },
    { "7b qkv fwd", 4608, 26624, 3584, false, 1, { { 209, 1, 677 }, { 24, 1, 682 }, { 23, 1, 676 }, { 29, 1, 682 }, { OWN, 1, 686 } } },
    { "7b qkv dx", 3584, 26624, 4608, false, 1, { { 209, 1, 655 }, { 24, 1, 677 }, { 23, 1, 660 }, { 29, 1, 672 }, { OWN, 1, 655 } } },
    { "7b qkv dw", 3584, 4608, 26624, false, 1, { { 23, 1, 675 }, { 24, 1, 672 }, { 209, 1, 630 }, { 20, 1, 644 }, { 29, 1, 652 }, { OWN, 1, 654 } } },
    { "7b o fwd", 3584, 26624, 3584, false, 1, { { 24, 1, 667 }, { 209, 1, 649 }, { 23, 1, 671 }, { 29, 1, 675 }, { OWN, 1, 649 } } },
    { "7b o dx", 3584, 26624, 3584, false, 1, { { 24, 1, 668 }, { 209, 1, 654 }, { 23, 1, 660 }, { 29, 1, 678 }, { OWN, 1, 645 } } },
    { "7b o dw", 3584, 3584, 26624, false, 1, { { 23, 1, 686 }, { 24, 1, 681 }, { 209, 1, 627 }, { 20, 1, 659 }, { 29, 1, 653 }, { OWN, 1, 565 } } },
    { "8b gate_up fwd", 28672, 32768, 4096, false, 1, { { 209, 1, 687 }, { 24, 1, 683 }, { 23, 1, 688 }, { 201, 1, 705 }, { 197, 1, 701 }, { OWN, 1, 693 } } },
    { "8b gate_up dx", 4096, 32768, 28672, false, 1, { { 209, 1, 674 }, { 24, 1, 698 }, { 23, 1, 681 }, { 29, 1, 691 }, { OWN, 1, 700 } } },
    { "8b gate_up dw", 4096, 28672, 32768, false, 1, { { 209, 1, 680 }, { 23, 1, 681 }, { 24, 1, 684 }, { 29, 1, 660 }, { OWN, 1, 690 } } },
    { "8b down fwd", 4096, 32768, 14336, false, 1, { { 209, 1, 677 }, { 24, 1, 688 }, { 23, 1, 687 }, { 29, 1, 686 }, { OWN, 1, 689 } } },
    { "8b down dx", 14336, 32768, 4096, false, 1, { { 209, 1, 677 }, { 24, 1, 694 }, { 23, 1, 688 }, { 29, 1, 701 }, { OWN, 1, 694 } } },
    { "8b down dw", 14336, 4096, 32768, false, 1, { { 23, 1, 683 }, { 24, 1, 683 }, { 209, 1, 659 }, { 29, 1, 650 }, { OWN, 1, 686 } } },
    { "8b qkv fwd", 6144, 32768, 4096, false, 1, { { 209, 1, 681 }, { 24, 1, 686 }, { 23, 1, 684 }, { 201, 1, 700 }, { 29, 1, 697 }, { OWN, 1, 687 } } },
    { "8b qkv dx", 4096, 32768, 6144, false, 1, { { 209, 1, 660 }, { 24, 1, 680 }, { 23, 1, 678 }, { 29, 1, 687 }, { OWN, 1, 677 } } },
    { "8b qkv dw", 4096, 6144, 32768, false, 1, { { 23, 1, 680 }, { 24, 1, 686 }, { 209, 1, 661 }, { 20, 1, 647 }, { OWN, 1, 721 } } },
    { "8b o fwd", 4096, 32768, 4096, false, 1, { { 209, 1, 656 }, { 24, 1, 694 }, { 23, 1, 665 }, { 29, 1, 690 }, { OWN, 1, 676 } } },
    { "8b o dx", 4096, 32768, 4096, false, 1, { { 209, 1, 660 }, { 24, 1, 685 }, { 23, 1, 666 }, { 29, 1, 686 }, { OWN, 1, 672 } } },
    { "8b o dw", 4096, 4096, 32768, false, 1, { { 23, 1, 688 }, { 24, 1, 685 }, { 209, 1, 635 }, { 20, 1, 652 }, { 29, 1, 653 }, { OWN, 1, 672 } } },
    { "14b gate_up fwd", 27648, 32768, 5120, false, 1, { { 209, 1, 688 }, { 24, 1, 688 }, { 23, 1, 697 }, { 201, 1, 698 }, { 197, 1, 700 }, { OWN, 1, 717 } } },
    { "14b gate_up dx", 5120, 32768, 27648, false, 1, { { 24, 1, 707 }, { 23, 1, 698 }, { 209, 1, 682 }, { 29, 1, 686 }, { OWN, 1, 679 } } },
    { "14b gate_up dw", 5120, 27648, 32768, false, 1, { { 209, 1, 687 }, { 23, 1, 686 }, { 24, 1, 694 }, { 29, 1, 655 }, { OWN, 1, 690 } } },
    { "14b down fwd", 5120, 32768, 13824, false, 1, { { 24, 1, 705 }, { 23, 1, 701 }, { 209, 1, 684 }, { 29, 1, 680 }, { OWN, 1, 681 } } },
    { "14b down dx", 13824, 32768, 5120, false, 1, { { 209, 1, 684 }, { 24, 1, 696 }, { 23, 1, 694 }, { 29, 1, 693 }, { OWN, 1, 708 } } },
    { "14b down dw", 13824, 5120, 32768, false, 1, { { 209, 1, 677 }, { 23, 1, 684 }, { 24, 1, 675 }, { 29, 1, 665 }, { 20, 1, 679 }, { OWN, 1, 724 } } },
    { "14b qkv fwd", 7168, 32768, 5120, false, 1, { { 209, 1, 674 }, { 24, 1, 688 }, { 23, 1, 685 }, { 201, 1, 691 }, { 29, 1, 696 }, { OWN, 1, 710 } } },
    { "14b qkv dx", 5120, 32768, 7168, false, 1, { { 24, 1, 701 }, { 23, 1, 693 }, { 209, 1, 675 }, { 29, 1, 687 }, { OWN, 1, 687 } } },
    { "14b qkv dw", 5120, 7168, 32768, false, 1, { { 209, 1, 669 }, { 23, 1, 670 }, { 24, 1, 670 }, { 29, 1, 665 }, { 20, 1, 673 }, { OWN, 1, 688 } } },
    { "14b o fwd", 5120, 32768, 5120, false, 1, { { 24, 1, 694 }, { 23, 1, 688 }, { 209, 1, 667 }, { 29, 1, 689 }, { OWN, 1, 683 } } },
    { "14b o dx", 5120, 32768, 5120, false, 1, { { 24, 1, 694 }, { 23, 1, 687 }, { 209, 1, 664 }, { 29, 1, 691 }, { OWN, 1, 669 } } },
    { "14b o dw", 5120, 5120, 32768, false, 1, { { 209, 1, 644 }, { 29, 1, 664 }, { 23, 1, 670 }, { 24, 1, 665 }, { 20, 1, 643 }, { OWN, 1, 637 } } },
    { "32b gate_up fwd", 55296, 32768, 5120, false, 1, { { 209, 1, 692 }, { 24, 1, 692 }, { 23, 1, 692 }, { 201, 1, 704 }, { OWN, 1, 683 } } },
    { "32b gate_up dx", 5120, 32768, 55296, false, 1, { { 24, 1, 704 }, { 23, 1, 685 }, { 209, 1, 684 }, { 29, 1, 674 }, { OWN, 1, 689 } } },
    { "32b gate_up dw", 5120, 55296, 32768, false, 1, { { 209, 1, 687 }, { 23, 1, 671 }, { 24, 1, 685 }, { 29, 1, 675 }, { OWN, 1, 698 } } },
    { "32b down fwd", 5120, 32768, 27648, false, 1, { { 24, 1, 704 }, { 23, 1, 694 }, { 209, 1, 678 }, { 29, 1, 681 }, { OWN, 1, 688 } } },
    { "32b down dx", 27648, 32768, 5120, false, 1, { { 209, 1, 681 }, { 24, 1, 696 }, { 23, 1, 690 }, { 29, 1, 700 }, { OWN, 1, 668 } } },
    { "32b down dw", 27648, 5120, 32768, false, 1, { { 209, 1, 675 }, { 23, 1, 693 }, { 24, 1, 687 }, { 29, 1, 668 }, { OWN, 1, 702 } } },
    { "72b gate_up fwd", 59136, 32768, 8192, false, 1, { { 209, 1, 690 }, { 24, 1, 694 }, { 23, 1, 686 }, { 201, 1, 691 }, { OWN, 1, 707 } } },
    { "72b gate_up dx", 8192, 32768, 59136, false, 1, { { 209, 1, 672 }, { 24, 1, 689 }, { 23, 1, 684 }, { 29, 1, 656 }, { OWN, 1, 702 } } },
    { "72b gate_up dw", 8192, 59136, 32768, false, 1, { { 209, 1, 684 }, { 23, 1, 671 }, { 24, 1, 682 }, { 29, 1, 642 }, { OWN, 1, 683 } } },
    { "72b down fwd", 8192, 32768, 29568, false, 1, { { 209, 1, 683 }, { 24, 1, 701 }, { 23, 1, 684 }, { 201, 1, 689 }, { OWN, 1, 717 } } },
    { "72b down dx", 29568, 32768, 8192, false, 1, { { 209, 1, 688 }, { 24, 1, 699 }, { 23, 1, 691 }, { 29, 1, 693 }, { OWN, 1, 714 } } },
    { "72b down dw", 29568, 8192, 32768, false, 1, { { 209, 1, 681 }, { 23, 1, 679 }, { 24, 1, 684 }, { 29, 1, 639 }, { OWN, 1, 716 } } },
    { "123b gate_up fwd", 57344, 32768, 12288, false, 1, { { 209, 1, 676 }, { 248, 1, 665 }, { 24, 1, 680 }, { 23, 1, 671 }, { OWN, 1, 676 } } },
    { "123b gate_up dx", 12288, 32768, 57344, false, 1, { { 209, 1, 677 }, { 248, 1, 653 }, { 24, 1, 650 }, { 23, 1, 648 }, { OWN, 1, 691 } } },
    { "123b gate_up dw", 12288, 57344, 32768, false, 1, { { 209, 1, 674 }, { 23, 1, 662 }, { 24, 1, 660 }, { 248, 1, 649 }, { OWN, 1, 689 } } },
    { "123b down fwd", 12288, 32768, 28672, false, 1, { { 209, 1, 673 }, { 248, 1, 657 }, { 24, 1, 670 }, { 23, 1, 659 }, { OWN, 1, 711 } } },
    { "123b down dx", 28672, 32768, 12288, false, 1, { { 209, 1, 682 }, { 248, 1, 684 }, { 24, 1, 690 }, { 23, 1, 690 }, { OWN, 1, 692 } } },
    { "123b down dw", 28672, 12288, 32768, false, 1, { { 209, 1, 672 }, { 248, 1, 658 }, { 23, 1, 670 }, { 24, 1, 674 }, { OWN, 1, 698 } } },
    { "123b qkv fwd", 14336, 32768, 12288, false, 1, { { 209, 1, 668 }, { 248, 1, 660 }, { 24, 1, 674 }, { 23, 1, 661 }, { OWN, 1, 692 } } },
    { "123b qkv dx", 12288, 32768, 14336, false, 1, { { 209, 1, 692 }, { 248, 1, 681 }, { 24, 1, 692 }, { 23, 1, 684 }, { OWN, 1, 721 } } },
    { "123b qkv dw", 12288, 14336, 32768, false, 1, { { 209, 1, 670 }, { 23, 1, 669 }, { 24, 1, 677 }, { 248, 1, 649 }, { OWN, 1, 707 } } },
    { "123b o fwd", 12288, 32768, 12288, false, 1, { { 209, 1, 667 }, { 248, 1, 645 }, { 24, 1, 666 }, { 23, 1, 655 }, { OWN, 1, 689 } } },
    { "123b o dx", 12288, 32768, 12288, false, 1, { { 209, 1, 670 }, { 248, 1, 647 }, { 24, 1, 653 }, { 23, 1, 638 }, { OWN, 1, 685 } } },
    { "123b o dw", 12288, 12288, 32768, false, 1, { { 209, 1, 653 }, { 23, 1, 634 }, { 24, 1, 652 }, { 248, 1, 634 }, { OWN, 1, 660 } } },
};
/* clang-format on */

static int chosen(size_t i)
{
    mt_tile_choice choices[CHOICES];
    for (int c = 0; c < CHOICES; c++) choices[c] = (mt_tile_choice){ measured[i].choices[c].tile, measured[i].choices[c].split };
    const mt_tiled p = { .m = measured[i].m,
                         .n = measured[i].n,
                         .k = measured[i].k,
                         .bias = measured[i].bias,
                         .dw = strstr(measured[i].name, " dw") != NULL,
                         .n_sms = N_SMS };
    return mt_tile_best(&p, choices, CHOICES);
}

/* A product within 6% of its best kernel, a model's within 1%. */
static void choices_are_near_the_best(void **state)
{
    (void)state;
    double took = 0, could = 0;
    for (size_t i = 0; i < MT_COUNT(measured); i++) {
        double best = 0, got = measured[i].choices[chosen(i)].tflops;
        double work = (double)measured[i].m * (double)measured[i].n * (double)measured[i].k * measured[i].times;
        for (int c = 0; c < CHOICES; c++) best = measured[i].choices[c].tflops > best ? measured[i].choices[c].tflops : best;
        if (got < 0.94 * best) fail_msg("%s: %.0f TFLOP/s, and another kernel has %.0f", measured[i].name, got, best);
        took += work / got;
        could += work / best;
        bool ends = i + 1 == MT_COUNT(measured) || measured[i].name[0] != measured[i + 1].name[0];
        if (!ends) continue;
        if (took > 1.01 * could)
            fail_msg("the products up to %s take %.1f%% longer than they could", measured[i].name, 100 * (took / could - 1));
        took = could = 0;
    }
}

static void what_is_not_known_is_left_to_the_library(void **state)
{
    (void)state;
    const mt_tiled large = { .m = 4096, .n = 4096, .k = 4096, .n_sms = N_SMS },
                   small = { .m = 1024, .n = 1024, .k = 1024, .n_sms = N_SMS };
    const mt_tile_choice known[] = { { 209, 1 }, { 29, 1 } }, first[] = { { 9999, 1 }, { 29, 1 } },
                         second[] = { { 29, 1 }, { 9999, 1 } };
    assert_int_equal(mt_tile_best(&large, known, 2), 1);
    assert_int_equal(mt_tile_best(&small, known, 2), 0); /* over before the card is hot */
    assert_int_equal(mt_tile_best(&large, first, 2), 0);
    assert_int_equal(mt_tile_best(&(mt_tiled){ .m = 5624, .n = 5632, .k = 7928, .n_sms = N_SMS },
                                  (const mt_tile_choice[]){ { 9999, 1 }, { OWN, 1 } }, 2),
                     0); /* nothing known to compare our own with */
    assert_int_equal(mt_tile_best(&large, second, 2), 0);
    assert_int_equal(mt_tile_best(&large, known, 1), 0);
}

/* Half a wave more costs half a wave of everything: the tile that fits is taken, then a split that fills the card. */
static void tiles_that_fill_the_card_are_preferred(void **state)
{
    (void)state;
    const mt_tile_choice tiles[] = { { 29, 1 }, { 24, 1 } }, splits[] = { { 20, 1 }, { 20, 4 } };
    assert_int_equal(mt_tile_best(&(mt_tiled){ .m = 2048, .n = 2048, .k = 32768, .n_sms = N_SMS }, tiles, 2),
                     1); /* 208 and 128 tiles on 132 places */
    assert_int_equal(mt_tile_best(&(mt_tiled){ .m = 896, .n = 4096, .k = 151936, .n_sms = N_SMS }, splits, 2),
                     1); /* 224 tiles, or 896 */
    assert_int_equal(mt_tile_best(&(mt_tiled){ .m = 1408, .n = 1536, .k = 8192, .n_sms = N_SMS }, splits, 2),
                     0); /* 132 tiles: full already */
}

/* Large, long sums, and tiles that fill the card: the three products that ops.ops_cuda counts on, then what each of them lacks. */
static void our_own_is_taken_for_large_products(void **state)
{
    (void)state;
    const mt_tile_choice choices[] = { { 209, 1 }, { 24, 1 }, { 23, 1 },  { 29, 1 }, { 20, 1 },
                                       { 31, 1 },  { 32, 1 }, { 197, 1 }, { OWN, 1 } };
    const mt_tiled taken[] = { { .m = 5624, .n = 5632, .k = 7928, .n_sms = N_SMS },
                               { .m = 7928, .n = 5624, .k = 5632, .dw = true, .n_sms = N_SMS },
                               { .m = 5624, .n = 5632, .k = 6648, .n_sms = N_SMS } },
                   left[] = { { .m = 5624, .n = 5632, .k = 4096, .n_sms = N_SMS },
                              { .m = 5624, .n = 5632, .k = 7928, .bias = true, .n_sms = N_SMS },
                              { .m = 5624, .n = 5900, .k = 7928, .n_sms = N_SMS },
                              { .m = 3840, .n = 5632, .k = 7928, .n_sms = N_SMS } };
    /* What cuBLASLt 13.0 offers for them on an H200; the first, its best, are tiles without a measured pace. */
    const mt_tile_choice offered[][CHOICES + 1] = {
        { { 195, 1 }, { 248, 1 }, { 181, 1 }, { 236, 1 }, { 173, 1 }, { 186, 1 }, { 209, 1 }, { 240, 1 }, { OWN, 1 } },
        { { 221, 1 }, { 195, 1 }, { 502, 1 }, { 209, 1 }, { 23, 1 }, { 24, 1 }, { 248, 1 }, { 421, 1 }, { OWN, 1 } },
        { { 195, 1 }, { 248, 1 }, { 209, 1 }, { 240, 1 }, { 32, 1 }, { 31, 1 }, { 23, 1 }, { 24, 1 }, { OWN, 1 } },
    };
    for (size_t i = 0; i < MT_COUNT(taken); i++) {
        if (choices[mt_tile_best(&taken[i], choices, MT_COUNT(choices))].tile != OWN)
            fail_msg("%d is left to the library", (int)i);
        if (offered[i][mt_tile_best(&taken[i], offered[i], MT_COUNT(offered[i]))].tile != OWN)
            fail_msg("%d is left to the library, which offers a tile that is not known", (int)i);
    }
    for (size_t i = 0; i < MT_COUNT(left); i++)
        if (choices[mt_tile_best(&left[i], choices, MT_COUNT(choices))].tile == OWN) fail_msg("%d is taken", (int)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_near_the_best),
        cmocka_unit_test(what_is_not_known_is_left_to_the_library),
        cmocka_unit_test(tiles_that_fill_the_card_are_preferred),
        cmocka_unit_test(our_own_is_taken_for_large_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
